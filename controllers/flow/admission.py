"""The flow law: how much is admitted per interval, so that the result queue keeps its free space.

The law follows Xu, section 3.1. With e(k) = setpoint - measured, and x = e (`pi`) or x = -measured (`i-p`, the default:
a new setpoint causes no kick, ERRATA E6):

    admit(k) = u(k-1) + ki·e(k) + kp·(x(k) - x(k-1)) - kd·(u(k-1) - u(k-2))

within minimum and maximum. u(k-1) and u(k-2) are what was **really** admitted: a law that continues from its own
commands floods the queue after a starvation (E6). kd adds speed where the plant responds a sample late (E5). Events
that are not admitted wait at their source; nothing is dropped.

With `deadband` above 0 the limit stays unchanged while fewer events arrive than it admits, the free space is above the
setpoint, and the new limit differs by no more than that share: the limit is set again. That limit is the one in force,
which a guard may have changed, not the commanded one.

The parameters may include a model of the plant, measured(k+1) = a·measured(k) + b·admit(k-delay). Gains that are
unstable on it are rejected. With adaptive `tuning` the model is tracked (`controllers.design.identify`), and the gains
keep the poles of the closed loop where the given gains put them on the given model.
"""

from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from common.errors import BadInput
from common.parameter import value
from controllers.design import placement
from controllers.design.identify import Estimate, build_initial_estimate, follow, is_covariance
from controllers.design.placement import FORMS, Gains, Model
from controllers.framework.decision import Decision, Expectation
from controllers.framework.law import Law, Values
from controllers.framework.reason import format_reason

PAST, COVARIANCES = 3, 9


class FlowParameters(msgspec.Struct, frozen=True, kw_only=True):
    setpoint: Annotated[float, value("bytes", "Target for the free space.", 0.0, 1e15)] = 4e8
    kp: Annotated[float, value("events per byte", "Proportional gain.", -1e9, 1e9)] = -0.002162
    ki: Annotated[float, value("events per byte", "Integral gain.", -1e9, 1e9)] = -0.000289
    kd: Annotated[
        float, value("1", "Gain on the change of the admitted amount, for a plant that responds late.", -10, 10)
    ] = 0.0
    form: Annotated[
        str,
        value(
            "choice",
            "i-p: proportional on the measurement. pi: on the error; a new setpoint overshoots.",
            choices=FORMS,
        ),
    ] = "i-p"
    minimum: Annotated[float, value("events per interval", "Minimum admitted amount.", 0.0, 1e12)] = 0.0
    maximum: Annotated[float, value("events per interval", "Maximum admitted amount.", 0.0, 1e12)] = 1e6
    a: Annotated[
        float | None, value("1", "Model: share of the free space that remains; omitted: no model.", 0.0, 1.05)
    ] = None
    b: Annotated[
        float | None, value("bytes per event", "Model: effect of one event, below 0; omitted: none.", -1e15, 1e15)
    ] = None
    delay: Annotated[int, value("samples", "Model: samples until an event takes effect.", 0, 1)] = 0
    tuning: Annotated[
        Literal["fixed", "adaptive"],
        value(
            "choice", "fixed: use the given gains. adaptive: adjust the gains to the plant, starting from the model."
        ),
    ] = "fixed"
    forgetting: Annotated[
        float, value("factor", "adaptive: factor by which the weight of a sample falls.", 0.5, 1.0)
    ] = 0.97
    resolution: Annotated[
        float, value("share of the setpoint", "adaptive: smaller changes count as noise.", 1e-6, 0.5)
    ] = 0.01
    interval_seconds: Annotated[float, value("s", "Time between two decisions.", 0.1, 3_600.0)] = 2.0
    deadband: Annotated[
        float, value("share", "Keep an unreached limit while the new limit differs by at most this share.", 0.0, 1.0)
    ] = 0.0


class FlowObservation(msgspec.Struct, frozen=True, kw_only=True):
    measured: Annotated[float, value("bytes", "Free bytes of the result queue.", -1e15, 1e15)]
    applied: Annotated[
        float | None,
        value("events", "Amount actually admitted since the last decision; null: as commanded.", 0.0, 1e12),
    ] = None


class FlowState(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements and admitted amounts, newest first; the newest amount is the commanded one."""

    measured: Annotated[
        tuple[float, ...], value("bytes", "Measurements, newest first.", -1e15, 1e15, required=True, most=PAST)
    ] = ()
    admitted: Annotated[
        tuple[float, ...], value("events", "Admitted amounts, newest first.", 0.0, 1e12, required=True, most=PAST)
    ] = ()
    setpoint: Annotated[float | None, value("bytes", "Last setpoint.", 0.0, 1e15, required=True, or_null=True)] = None
    limit: Annotated[float | None, value("events per interval", "Limit in force; null: none.", 0.0, 1e12)] = None
    estimate: Annotated[
        Estimate | None, value("model", "Estimate of the plant; null: none.", required=True, or_null=True)
    ] = None


# Without a model the settling time is unknown: the loop of E5 settles in this many samples.
USUAL_SETTLING_SAMPLES = 12
GOOD_RADIUS = 0.9
WORTH_EXPECTING = 0.05
STARVED_BELOW = 0.9  # share of the limit
ADMIT = "admit"  # in an action, the limit; in the terms, an unchanged one


class Flow(Law[FlowParameters, FlowObservation, FlowState]):
    """Controls free space by admission; see the module for the formula."""

    name = "flow"
    Parameters, Observation, State = FlowParameters, FlowObservation, FlowState
    actuator = ADMIT
    lasting = True
    # The result queue fills and empties by whole batches, and the admitted amount follows. A swing below a
    # batch means nothing. A measurement of two intervals ago is still useful.
    guard_defaults = {
        "maximum": 1e9,
        "slew_up": 1e9,
        "slew_down": 1e9,
        "oscillation_swing": 200_000.0,
        "stale_seconds": 5.0,
    }

    def check(self, parameters: FlowParameters) -> None:
        """Raise `BadInput` for contradictory limits, an incomplete model, or gains unstable on it."""
        if parameters.minimum > parameters.maximum:
            raise BadInput(
                "parameters.minimum", f"must be at most maximum ({parameters.maximum:g}), not {parameters.minimum:g}"
            )
        for name, own, other in (("a", parameters.a, "b"), ("b", parameters.b, "a")):
            if own is None and (parameters.a, parameters.b) != (None, None):
                raise BadInput(f"parameters.{name}", f"is missing; a model with {other} needs both a and b")
        model, gains = model_of(parameters), build_gains(parameters)
        if model is None:
            if parameters.tuning == "adaptive":
                raise BadInput("parameters.a", "is missing; adaptive tuning needs a model with a and b")
            return
        radius = placement.compute_spectral_radius(model, gains)
        # With an integral gain of 0 a pole stays at 1: the free space would settle anywhere.
        if not radius < placement.STABLE_BELOW:
            field = "kd" if gains.kp == gains.ki == 0 and gains.kd else "ki" if gains.ki == 0 else "kp"
            raise BadInput(
                f"parameters.{field}",
                f"kp {gains.kp:g}, ki {gains.ki:g}, kd {gains.kd:g} are unstable in the model a {model.a:g}, "
                f"b {model.b:g}, delay {model.delay}: spectral radius {radius:.4g}, must be less than 1; "
                "run manage.py design place to compute stable gains",
            )

    def check_state(self, parameters: FlowParameters, state: FlowState, where: str) -> None:
        """Raise `BadInput` for an invalid covariance: it takes nine numbers, symmetric, no variance below 0."""
        covariance = () if state.estimate is None else state.estimate.covariance
        if covariance and not is_covariance(covariance):
            raise BadInput(
                f"{where}.estimate.covariance",
                f"must be {COVARIANCES} numbers of a symmetric matrix without a variance below 0, or empty",
            )

    def resume(self, state: FlowState) -> FlowState:
        """Return a state without history: old measurements and the old limit no longer apply."""
        return replace(state, measured=(), admitted=(), limit=None)

    def correct(
        self, parameters: FlowParameters, before: FlowState, after: FlowState, action: Values | None
    ) -> FlowState:
        limit, admitted = before.limit if action is None else float(action[ADMIT]), after.admitted[1:]
        return replace(after, limit=limit, admitted=admitted if limit is None else (limit, *admitted))

    def decide(
        self, parameters: FlowParameters, state: FlowState, observation: FlowObservation
    ) -> tuple[FlowState, Decision]:
        """Return the amount to admit in the next interval."""
        # The amount that was really admitted replaces the commanded one.
        admitted = state.admitted or (parameters.minimum,)
        if observation.applied is not None:
            admitted = (observation.applied, *admitted[1:])
        now = replace(state, measured=(observation.measured, *state.measured)[:PAST], admitted=admitted)
        gains, estimate = _tune_gains(parameters, now)
        raw = _compute_raw_amount(parameters, gains, now)
        admit = min(max(raw, parameters.minimum), parameters.maximum)
        # Less arrived than the limit allowed: then a higher limit changes nothing.
        starved = state.limit is not None and admitted[0] < STARVED_BELOW * state.limit
        decision = _build_decision(parameters, gains, now, raw, admit, estimate, starved)
        limit = state.limit or 0.0
        is_near = bool(parameters.deadband) and abs(admit - limit) <= parameters.deadband * limit
        if starved and is_near and observation.measured >= parameters.setpoint:
            # There is room, and the last limit did not bind. It is set again; it continues, and the guard applies its
            # present settings.
            admit = limit
            what = f"Keep the limit of {admit:,.0f} events"
            reason = format_reason(what, "fewer arrive", remarks=[_describe_position(parameters, now)])
            terms = {**decision.terms, ADMIT: admit}
            decision = Decision({ADMIT: admit}, reason, terms, decision.limited_by, raw=admit)
        after = FlowState(
            measured=now.measured,
            admitted=(admit, *admitted)[:PAST],
            setpoint=parameters.setpoint,
            limit=admit,
            estimate=estimate,
        )
        return after, decision


LAW = Flow()


def limit_of(decision: Decision) -> float:
    """Return the events that may arrive in the next interval."""
    return float((decision.action or {})[ADMIT])


def model_of(parameters: FlowParameters) -> Model | None:
    if parameters.a is None or parameters.b is None:
        return None
    return Model(parameters.a, parameters.b, parameters.delay)


def build_gains(parameters: FlowParameters) -> Gains:
    return Gains(parameters.kp, parameters.ki, parameters.kd, parameters.form)


def _tune_gains(parameters: FlowParameters, now: FlowState) -> tuple[Gains, Estimate | None]:
    """Return the gains of this decision; in adaptive mode those that keep the poles on the estimated plant."""
    gains, start = build_gains(parameters), model_of(parameters)
    if start is None or parameters.tuning == "fixed":
        return gains, None
    noise = parameters.resolution * max(parameters.setpoint, 1.0)
    before = now.estimate or build_initial_estimate(start)
    estimate = follow(
        before,
        start,
        now.measured,
        now.admitted,
        setpoint=parameters.setpoint,
        noise=noise,
        forgetting=parameters.forgetting,
    )
    return _redesign_gains(start, estimate.model(start), gains), estimate


def _redesign_gains(start: Model, now: Model, gains: Gains) -> Gains:
    """Return gains that give the current plant the poles that the given gains gave the initial one.

    The given gains stay while they perform well, because an estimate is never accurate enough for small changes.
    """
    wanted = list(placement.compute_poles(start, gains))
    if placement.compute_spectral_radius(now, gains) <= max(GOOD_RADIUS, (1 + abs(wanted[0])) / 2):
        return gains
    if start.delay == 0 and gains.kd == 0:
        wanted = wanted[:2]  # the third is a factor z that cancels
    designed = placement.place(now, wanted, gains.form)
    return designed if placement.compute_spectral_radius(now, designed) < placement.STABLE_BELOW else gains


def _compute_raw_amount(parameters: FlowParameters, gains: Gains, now: FlowState) -> float:
    """Apply the formula of the module; before the first measurement everything was at rest."""
    y, u = now.measured[0], now.admitted[0]
    y_before = now.measured[1] if len(now.measured) > 1 else y
    u_before = now.admitted[1] if len(now.admitted) > 1 else u
    moved = y_before - y
    if gains.form == "pi" and now.setpoint is not None:
        moved += parameters.setpoint - now.setpoint
    error = parameters.setpoint - y
    return float(u + gains.ki * error + gains.kp * moved - gains.kd * (u - u_before))


def _build_decision(
    parameters: FlowParameters,
    gains: Gains,
    now: FlowState,
    raw: float,
    admit: float,
    estimate: Estimate | None,
    starved: bool,
) -> Decision:
    limited_by = None if admit == raw else "minimum" if admit > raw else "maximum"
    error, applied = parameters.setpoint - now.measured[0], now.admitted[0]
    terms = {
        "error": error,
        "measured": now.measured[0],
        "setpoint": parameters.setpoint,
        "applied": applied,
        "raw": raw,
        "kp": gains.kp,
        "ki": gains.ki,
        "kd": gains.kd,
        **({} if estimate is None else {"a": estimate.a, "b": (parameters.b or 0.0) * estimate.ratio}),
    }
    # If fewer arrived than were admitted, admitting fewer still changes nothing.
    without_effect = starved and error < 0
    causes = [_describe_position(parameters, now), *([f"this is the {limited_by}"] if limited_by else [])]
    remarks = ["unchanged" if admit == applied else f"before: {applied:,.0f}"]
    if without_effect:
        remarks.append("fewer arrived than were admitted, so no effect is expected")
    reason = format_reason(f"Admit {admit:,.0f} events", *causes, remarks=remarks)
    expected = None if without_effect else _build_expectation(parameters, error)
    return Decision({ADMIT: admit}, reason, terms, limited_by, admit, expected)


def _describe_position(parameters: FlowParameters, now: FlowState) -> str:
    y, error = now.measured[0], parameters.setpoint - now.measured[0]
    side = "below" if error > 0 else "above"
    where = f"{_format_size(abs(error))} {side} the setpoint" if error else "at the setpoint"
    return f"{_format_size(y)} free, {where}"


def _format_size(size_bytes: float) -> str:
    for unit, factor in (("MiB", 2.0**20), ("KiB", 2.0**10)):
        if abs(size_bytes) >= factor:
            return f"{size_bytes / factor:,.1f} {unit}"
    return f"{size_bytes:,.0f} bytes"


def _build_expectation(parameters: FlowParameters, error: float) -> Expectation | None:
    """Return the expected effect: at the setpoint once the loop has settled. Near it, noise hides any effect."""
    if abs(error) <= WORTH_EXPECTING * parameters.setpoint:
        return None
    model, samples = model_of(parameters), USUAL_SETTLING_SAMPLES
    if model is not None:
        samples = _count_settling_samples(model, build_gains(parameters)) or samples
    seconds = samples * parameters.interval_seconds
    return Expectation("free_bytes", "up" if error > 0 else "down", abs(error), seconds)


@lru_cache(maxsize=16)
def _count_settling_samples(model: Model, gains: Gains) -> int | None:
    """Return the settling time, computed once per model because it takes longer than the rest of a decision."""
    return placement.report(model, gains).settling_samples
