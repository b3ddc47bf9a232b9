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

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from common.errors import BadInput
from common.parameter import Parameter
from controllers.design import placement
from controllers.design.identify import A_BOUNDS, RATIO_BOUNDS, Estimate, build_initial_estimate, follow, is_covariance
from controllers.design.placement import FORMS, Gains, Model
from controllers.framework.decision import Decision, Expectation, Json
from controllers.framework.law import Law, Values
from controllers.framework.reason import format_reason

PARAMETERS = (
    Parameter("setpoint", "bytes", "Target for the free space.", 4e8, 0.0, 1e15),
    Parameter("kp", "events per byte", "Proportional gain.", -0.002162, -1e9, 1e9),
    Parameter("ki", "events per byte", "Integral gain.", -0.000289, -1e9, 1e9),
    Parameter("kd", "1", "Gain on the change of the admitted amount, for a plant that responds late.", 0.0, -10, 10),
    Parameter(
        "form",
        "choice",
        "i-p: proportional on the measurement. pi: on the error; a new setpoint overshoots.",
        "i-p",
        kind="choice",
        choices=FORMS,
    ),
    Parameter("minimum", "events per interval", "Minimum admitted amount.", 0.0, 0.0, 1e12),
    Parameter("maximum", "events per interval", "Maximum admitted amount.", 1e6, 0.0, 1e12),
    Parameter("a", "1", "Model: share of the free space that remains; omitted: no model.", None, 0.0, 1.05),
    Parameter("b", "bytes per event", "Model: effect of one event, below 0; omitted: none.", None, -1e15, 1e15),
    Parameter("delay", "samples", "Model: samples until an event takes effect.", 0, 0, 1, "integer"),
    Parameter(
        "tuning",
        "choice",
        "fixed: use the given gains. adaptive: adjust the gains to the plant, starting from the model.",
        "fixed",
        kind="choice",
        choices=("fixed", "adaptive"),
    ),
    Parameter("forgetting", "factor", "adaptive: factor by which the weight of a sample falls.", 0.97, 0.5, 1.0),
    Parameter("resolution", "share of the setpoint", "adaptive: smaller changes count as noise.", 0.01, 1e-6, 0.5),
    Parameter("interval_seconds", "s", "Time between two decisions.", 2.0, 0.1, 3_600.0),
    Parameter(
        "deadband", "share", "Keep an unreached limit while the new limit differs by at most this share.", 0.0, 0.0, 1.0
    ),
)
OBSERVATION = (
    Parameter("measured", "bytes", "Free bytes of the result queue.", None, -1e15, 1e15, required=True),
    Parameter(
        "applied", "events", "Amount actually admitted since the last decision; null: as commanded.", None, 0.0, 1e12
    ),
)
PAST, COVARIANCES = 3, 9
ESTIMATE = (
    Parameter("a", "1", "Estimated a.", None, *A_BOUNDS, required=True),
    Parameter(
        "ratio", "b of the parameters", "Estimated b, relative to the parameter.", None, *RATIO_BOUNDS, required=True
    ),
    Parameter("offset", "bytes", "Estimated offset.", None, -1e36, 1e36, required=True),
    Parameter("mean", "events per interval", "Mean admitted amount.", None, 0.0, 1e12, or_null=True),
    Parameter(
        "covariance",
        "units of a, ratio and offset",
        "P, row by row; empty before the first sample.",
        None,
        -1e36,
        1e36,
        "numbers",
        required=True,
        most=COVARIANCES,
    ),
)
STATE = (
    Parameter(
        "measured", "bytes", "Measurements, newest first.", None, -1e15, 1e15, "numbers", required=True, most=PAST
    ),
    Parameter(
        "admitted", "events", "Admitted amounts, newest first.", None, 0.0, 1e12, "numbers", required=True, most=PAST
    ),
    Parameter("setpoint", "bytes", "Last setpoint.", None, 0.0, 1e15, required=True, or_null=True),
    Parameter("limit", "events per interval", "Limit in force; null: none.", None, 0.0, 1e12),
    Parameter(
        "estimate",
        "model",
        "Estimate of the plant; null: none.",
        kind="object",
        required=True,
        or_null=True,
        items=ESTIMATE,
    ),
)
# Without a model the settling time is unknown: the loop of E5 settles in this many samples.
USUAL_SETTLING_SAMPLES = 12
GOOD_RADIUS = 0.9
WORTH_EXPECTING = 0.05
STARVED_BELOW = 0.9  # share of the limit
ADMIT = "admit"  # in an action, the limit; in the terms, an unchanged one


@dataclass(frozen=True)
class _Memory:
    """Measurements and admitted amounts, newest first, with the last setpoint and the limit in force.

    The newest amount is the commanded one.
    """

    measured: tuple[float, ...] = ()
    admitted: tuple[float, ...] = ()
    setpoint: float | None = None
    estimate: Estimate | None = None
    limit: float | None = None


class Flow:
    """Controls free space by admission; see the module for the formula."""

    name = "flow"
    parameters: Sequence[Parameter] = PARAMETERS
    observation: Sequence[Parameter] = OBSERVATION
    state: Sequence[Parameter] = STATE
    actuator: str | None = ADMIT
    lasting = True
    # The result queue fills and empties by whole batches, and the admitted amount follows. A swing below a
    # batch means nothing. A measurement of two intervals ago is still useful.
    guard_defaults: Values = {
        "maximum": 1e9,
        "slew_up": 1e9,
        "slew_down": 1e9,
        "oscillation_swing": 200_000.0,
        "stale_seconds": 5.0,
    }

    def check(self, parameters: Values) -> None:
        """Raise `BadInput` for contradictory limits, an incomplete model, or gains unstable on it."""
        if parameters["minimum"] > parameters["maximum"]:
            raise BadInput(
                "parameters.minimum",
                f"must be at most maximum ({parameters['maximum']:g}), not {parameters['minimum']:g}",
            )
        for name, other in (("a", "b"), ("b", "a")):
            if parameters[name] is None and parameters[other] is not None:
                raise BadInput(f"parameters.{name}", f"is missing; a model with {other} needs both a and b")
        if (model := model_of(parameters)) is not None:
            _check_gains(model, build_gains(parameters))
        elif parameters["tuning"] == "adaptive":
            raise BadInput("parameters.a", "is missing; adaptive tuning needs a model with a and b")

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Accept every observation: any two numbers are consistent."""

    def build_initial_state(self, parameters: Values) -> Json:
        """Return a state without measurements or admitted amounts."""
        return _to_json(_Memory())

    def check_state(self, parameters: Values, state: Values, where: str) -> None:
        """Raise `BadInput` for an invalid covariance: it takes nine numbers, symmetric, no variance below 0."""
        covariance = [] if state["estimate"] is None else state["estimate"]["covariance"]
        if covariance and not is_covariance(covariance):
            raise BadInput(
                f"{where}.estimate.covariance",
                f"must be {COVARIANCES} numbers of a symmetric matrix without a variance below 0, or empty",
            )

    def resume_state(self, parameters: Values, state: Json) -> Json:
        """Return a state without history: old measurements and the old limit no longer apply."""
        return {**state, "measured": [], "admitted": [], "limit": None}

    def correct_state(self, parameters: Values, before: Json, after: Json, action: Values | None) -> Json:
        """Return the state with the limit that is in force."""
        limit, admitted = before["limit"] if action is None else float(action[ADMIT]), after["admitted"][1:]
        return {**after, "limit": limit, "admitted": admitted if limit is None else [limit, *admitted]}

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """Return the amount to admit in the next interval."""
        before = _restore_memory(state)
        memory = _record_measurement(before, parameters, observation)
        gains, estimate = _tune_gains(parameters, memory)
        raw = _compute_raw_amount(parameters, gains, memory)
        admit = min(max(raw, parameters["minimum"]), parameters["maximum"])
        starved = _is_starved(before, memory)
        decision = _build_decision(parameters, gains, memory, raw, admit, estimate, starved)
        if starved and _may_stand(parameters, before, memory, admit):
            admit = float(before.limit or 0.0)
            decision = _repeat_limit(parameters, memory, admit, decision)
        after = replace(
            memory,
            admitted=(admit, *memory.admitted)[:PAST],
            setpoint=float(parameters["setpoint"]),
            estimate=estimate,
            limit=admit,
        )
        return _to_json(after), decision


LAW: Law = Flow()


def limit_of(decision: Decision) -> float:
    """Return the events that may arrive in the next interval."""
    return float((decision.action or {})[ADMIT])


def model_of(parameters: Values) -> Model | None:
    """Return the model of the plant, if the parameters have one."""
    if parameters["a"] is None or parameters["b"] is None:
        return None
    return Model(float(parameters["a"]), float(parameters["b"]), int(parameters["delay"]))


def build_gains(parameters: Values) -> Gains:
    """Return the gains as set."""
    return Gains(float(parameters["kp"]), float(parameters["ki"]), float(parameters["kd"]), parameters["form"])


def _check_gains(model: Model, gains: Gains) -> None:
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


def _record_measurement(memory: _Memory, parameters: Values, observation: Values) -> _Memory:
    """Return the memory with the newest measurement and the amount that was really admitted.

    This amount replaces the commanded one.
    """
    measured = (float(observation["measured"]), *memory.measured)[:PAST]
    admitted = memory.admitted or (float(parameters["minimum"]),)
    if observation["applied"] is not None:
        admitted = (float(observation["applied"]), *admitted[1:])
    return replace(memory, measured=measured, admitted=admitted)


def _is_starved(before: _Memory, memory: _Memory) -> bool:
    """Return whether less arrived than the limit allowed: then a higher limit changes nothing."""
    return before.limit is not None and memory.admitted[0] < STARVED_BELOW * before.limit


def _may_stand(parameters: Values, before: _Memory, memory: _Memory, admit: float) -> bool:
    """Return whether the last limit, which did not bind, may stay.

    It may if there is room, and the new one differs by at most `deadband`.
    """
    limit = before.limit or 0.0
    near = abs(admit - limit) <= parameters["deadband"] * limit
    return bool(parameters["deadband"]) and near and memory.measured[0] >= parameters["setpoint"]


def _repeat_limit(parameters: Values, memory: _Memory, limit: float, decision: Decision) -> Decision:
    """Return a decision that sets the limit again; it continues, and the guard applies its present settings."""
    what = f"Keep the limit of {limit:,.0f} events"
    reason = format_reason(what, "fewer arrive", remarks=[_describe_position(parameters, memory)])
    terms = {**decision.terms, ADMIT: limit}
    return Decision({ADMIT: limit}, reason, terms, decision.limited_by, raw=limit)


def _tune_gains(parameters: Values, memory: _Memory) -> tuple[Gains, Estimate | None]:
    """Return the gains of this decision; in adaptive mode those that keep the poles on the estimated plant."""
    gains, start = build_gains(parameters), model_of(parameters)
    if start is None or parameters["tuning"] == "fixed":
        return gains, None
    noise = parameters["resolution"] * max(parameters["setpoint"], 1.0)
    before = memory.estimate or build_initial_estimate(start)
    estimate = follow(
        before,
        start,
        memory.measured,
        memory.admitted,
        setpoint=parameters["setpoint"],
        noise=noise,
        forgetting=parameters["forgetting"],
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


def _compute_raw_amount(parameters: Values, gains: Gains, memory: _Memory) -> float:
    """Apply the formula of the module; before the first measurement everything was at rest."""
    y, u = memory.measured[0], memory.admitted[0]
    y_before = memory.measured[1] if len(memory.measured) > 1 else y
    u_before = memory.admitted[1] if len(memory.admitted) > 1 else u
    moved = y_before - y
    if gains.form == "pi" and memory.setpoint is not None:
        moved += parameters["setpoint"] - memory.setpoint
    error = parameters["setpoint"] - y
    return float(u + gains.ki * error + gains.kp * moved - gains.kd * (u - u_before))


def _build_decision(
    parameters: Values,
    gains: Gains,
    memory: _Memory,
    raw: float,
    admit: float,
    estimate: Estimate | None,
    starved: bool,
) -> Decision:
    limited_by = None if admit == raw else "minimum" if admit > raw else "maximum"
    error = parameters["setpoint"] - memory.measured[0]
    terms = {
        "error": error,
        "measured": memory.measured[0],
        "setpoint": parameters["setpoint"],
        "applied": memory.admitted[0],
        "raw": raw,
        "kp": gains.kp,
        "ki": gains.ki,
        "kd": gains.kd,
        **({} if estimate is None else {"a": estimate.a, "b": parameters["b"] * estimate.ratio}),
    }
    # If fewer arrived than were admitted, admitting fewer still changes nothing.
    without_effect = starved and error < 0
    reason = _explain_decision(parameters, memory, admit, limited_by, without_effect)
    expected = None if without_effect else _build_expectation(parameters, gains, error)
    return Decision({ADMIT: admit}, reason, terms, limited_by, admit, expected)


def _explain_decision(parameters: Values, memory: _Memory, admit: float, limited_by: str | None, starved: bool) -> str:
    u, cause = memory.admitted[0], _describe_position(parameters, memory)
    causes = [cause, f"this is the {limited_by}"] if limited_by else [cause]
    change = "unchanged" if admit == u else f"before: {u:,.0f}"
    remarks = [change, "fewer arrived than were admitted, so no effect is expected"] if starved else [change]
    return format_reason(f"Admit {admit:,.0f} events", *causes, remarks=remarks)


def _describe_position(parameters: Values, memory: _Memory) -> str:
    """Describe how much is free and how far that is from the setpoint."""
    y, error = memory.measured[0], parameters["setpoint"] - memory.measured[0]
    side = "below" if error > 0 else "above"
    where = f"{_format_size(abs(error))} {side} the setpoint" if error else "at the setpoint"
    return f"{_format_size(y)} free, {where}"


def _format_size(size_bytes: float) -> str:
    for unit, factor in (("MB", 1e6), ("kB", 1e3)):
        if abs(size_bytes) >= factor:
            return f"{size_bytes / factor:,.1f} {unit}"
    return f"{size_bytes:,.0f} bytes"


def _build_expectation(parameters: Values, gains: Gains, error: float) -> Expectation | None:
    """Return the expected effect: back at the setpoint once the loop has settled.

    Near the setpoint, noise hides any effect.
    """
    if abs(error) <= WORTH_EXPECTING * parameters["setpoint"]:
        return None
    model, samples = model_of(parameters), USUAL_SETTLING_SAMPLES
    if model is not None:
        samples = _count_settling_samples(model, build_gains(parameters)) or samples
    seconds = samples * parameters["interval_seconds"]
    return Expectation("free_bytes", "up" if error > 0 else "down", abs(error), seconds)


@lru_cache(maxsize=16)
def _count_settling_samples(model: Model, gains: Gains) -> int | None:
    """Return the settling time, computed once per model because it takes longer than the rest of a decision."""
    return placement.report(model, gains).settling_samples


def _to_json(memory: _Memory) -> Json:
    estimate = memory.estimate
    return {
        "measured": list(memory.measured),
        "admitted": list(memory.admitted),
        "setpoint": memory.setpoint,
        "limit": memory.limit,
        "estimate": None if estimate is None else {**asdict(estimate), "covariance": list(estimate.covariance)},
    }


def _restore_memory(state: Json) -> _Memory:
    estimate = state["estimate"]
    return _Memory(
        tuple(state["measured"]),
        tuple(state["admitted"]),
        state["setpoint"],
        None if estimate is None else Estimate(**{**estimate, "covariance": tuple(estimate["covariance"])}),
        state["limit"],
    )
