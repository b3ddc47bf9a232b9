"""The balance law: shares of the load for N replicas, so that all have the mean response time.

The law follows Xu, 3.2. It controls the differences d_i = R_i - mean(R). The sum of the shares is constant, so N - 1 of
them are free (for two replicas one: a single controller). A share takes effect after `delay` decisions, and a measured
response time is the mean of `averaging` intervals. With the columns of T' an orthonormal basis of vectors that sum to
0, d = T'x, and shares = start + T'v as parts of their sum, the model is

    x(k+1) = T·diag(a)·T'·x(k) + T·diag(b)·T'·mean of v(k-delay), …, v(k-delay-averaging+1)
    i(k+1) = i(k) + x(k)                                   integrators: they remove a constant difference

(the integrators also handle what the mean adds to the differences of unlike replicas). The states are x, the earlier
v that have not taken full effect, and i. The regulator minimizes Σ q·|x|² + integral·|i|² + r·|v|²;
v = -K·x - L·i - Σ M_j·v(k-j) is applied as a change of the shares in force,

    share(k) = share(k-1) - K·(d(k) - d(k-1)) - L·d(k-1) - Σ M_j·(share(k-j) - share(k-j-1))

so that a share at its limit causes no windup (ERRATA E6 for the flow law). The differences of identical replicas
decouple into N - 1 equal loops.

Xu's Figure 9 shows a regulator for the wrong delay, which oscillates. Parameters are therefore refused unless their
loop is stable with every delay up to `MAX_DELAY` decisions. With adaptive `tuning`, a and b are identified from the
changes of differences and shares (`controllers.design.identify`), and the gains scale with 1/b.

A correction begins when the slowest and the fastest replica differ by more than random variation, and continues until
little of the difference is left. Without errors of measurement (`error_seconds`), every difference counts.

The load has to be sufficient, where it is known. With few events the response time is that of the batch itself, and a
share that followed it would drift to its limit. So below `least_events_per_second`, and while no replica is busy for
`least_utilisation` of the time, the shares return to equal, by half of the distance at each decision, and differences
start again. The same applies to a replica that reports nothing because its share is so small (`starved`), and where
shares have no effect: the identified effect of a whole share is below `resolution_seconds`, or all replicas run on the
same cores and none differs from the others. With enough load, shares stay unchanged while the response times are not
comparable (`incomparable`); a return that has started continues.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from common.errors import BadInput
from common.parameter import value
from controllers.design.identify import Information, learn_changes, solve_model
from controllers.flow.balance_gains import BalanceGains, Floats, build_system, design_balance_gains, design_one_loop
from controllers.framework.decision import Decision, Expectation
from controllers.framework.law import Law, Values
from controllers.framework.reason import format_count, format_no_action, format_number, format_percent, format_reason

MAX_DELAY, MAX_AVERAGING = 2, 4  # decisions
PAST_SHARES, PAST_DIFFERENCES = MAX_DELAY + MAX_AVERAGING + 1, 3
A = value("1", "Model: share of a response time that remains at the next decision.", 0.0, 1.2)
B = value("s per share of all", "Model: effect of the whole load.", 1e-9, 1e9)


class BalanceParameters(msgspec.Struct, frozen=True, kw_only=True):
    a: Annotated[float, A] = 0.8
    b: Annotated[
        float | None,
        value(
            "s per share of all",
            "Model: effect of the whole load. Default: the effect on overloaded replicas, 0.6 intervals per replica.",
            1e-9,
            1e9,
        ),
    ] = None
    q: Annotated[float, value("1/s²", "Weight of a difference.", 0.0, 1e9)] = 1.0
    integral: Annotated[float, value("1/s²", "Weight of a lasting difference.", 1e-9, 1e9)] = 0.25
    r: Annotated[
        float | None,
        value(
            "1/share²",
            "Weight of a change of shares; higher values change shares less. Default: 16 times the square of b.",
            1e-9,
            1e12,
        ),
    ] = None
    minimum_share: Annotated[
        float | None,
        value(
            "share of all",
            "Minimum share of a replica, so that it can be measured. Default: 0.02, or half of an equal share with "
            "more than 25 replicas.",
            0.0,
            0.5,
        ),
    ] = None
    resolution_seconds: Annotated[
        float, value("s", "Smaller differences count as noise, such as a batch that started later.", 0.0, 3_600.0)
    ] = 0.5
    interval_seconds: Annotated[float, value("s", "Time between two decisions.", 0.1, 3_600.0)] = 2.0
    delay: Annotated[int, value("decisions", "Model: decisions until a share takes effect.", 0, MAX_DELAY)] = 1
    averaging: Annotated[
        int, value("decisions", "Model: number of intervals that a response time averages.", 1, MAX_AVERAGING)
    ] = 2
    tuning: Annotated[
        Literal["fixed", "adaptive"],
        value("choice", "fixed: use the given model. adaptive: identify a and b, starting from the model."),
    ] = "adaptive"
    forgetting: Annotated[
        float, value("factor", "adaptive: factor that reduces the weight of past decisions.", 0.5, 1.0)
    ] = 0.97
    least_events_per_second: Annotated[
        float,
        value(
            "events/s",
            "Minimum load of all replicas together; below it the shares return to equal, because response times are "
            "too rare to compare.",
            0.0,
            1e9,
        ),
    ] = 500.0
    least_utilisation: Annotated[
        float,
        value(
            "share of the time",
            "While no replica is busy for this share of the time, the shares return to equal.",
            0.0,
            1.0,
        ),
    ] = 0.05
    a_of: Annotated[dict[str, Annotated[float, A]], value("1", "a by replica, if it differs.")] = {}
    b_of: Annotated[dict[str, Annotated[float, B]], value("s per share of all", "b by replica, if it differs.")] = {}


class BalanceObservation(msgspec.Struct, frozen=True, kw_only=True):
    response_times_seconds: Annotated[
        dict[str, Annotated[float, value("s", "Response time of a replica.", 0.0, 1e9)]],
        value("s", "Response time per replica."),
    ]
    shares: Annotated[
        dict[str, Annotated[float, value("share", "Share of a replica.")]],
        value("share", "Share per replica, as in force."),
    ]
    events_per_second: Annotated[
        float | None, value("events/s", "Load of all replicas; null: high enough to compare them.", 0.0, 1e15)
    ] = None
    utilisation: Annotated[
        float | None, value("share of the time", "Utilization of the busiest replica; null: high enough.", 0.0, 1.0)
    ] = None
    incomparable: Annotated[
        str | None, value("sentence", "Reason why response times can't be compared; null: they can.")
    ] = None
    error_seconds: Annotated[
        float | None,
        value(
            "s",
            "Standard error of the difference between the slowest and the fastest replica; null: no difference is due "
            "to chance.",
            0.0,
            1e9,
        ),
    ] = None
    same_cores: Annotated[bool, value("flag", "True: all replicas run on the same cores.")] = False
    starved: Annotated[str | None, value("sentence", "Replicas whose share is too small for a report; null: none.")] = (
        None
    )


class BalanceState(msgspec.Struct, frozen=True, kw_only=True):
    """The values that the next change starts from. Lists are newest first."""

    differences: Annotated[
        dict[str, Annotated[float, value("s", "Difference of a replica.", -1e9, 1e9)]],
        value("s", "Differences at the last change of shares.", required=True),
    ] = {}
    returning: Annotated[bool, value("flag", "True: the shares are returning to equal.")] = False
    correcting: Annotated[bool, value("flag", "True: a difference is being corrected.")] = False
    past_differences: Annotated[
        dict[str, Annotated[tuple[float, ...], value("s", "Of a replica.", -1e9, 1e9, most=PAST_DIFFERENCES)]],
        value("s", "Differences at the last decisions."),
    ] = {}
    past_shares: Annotated[
        dict[str, Annotated[tuple[float, ...], value("share of all", "Of a replica.", 0.0, 1.0, most=PAST_SHARES)]],
        value("share of all", "Shares in force before the last decisions."),
    ] = {}
    information: Annotated[
        Information | None, value("model", "Information about a and b from past changes; null: none.", or_null=True)
    ] = None


MINIMUM_SHARE, MINIMUM_OF_EQUAL = 0.02, 0.5  # default without a parameter
WORTH_EXPECTING = 0.1
EXPECTED_INTERVALS = 10
MAX_REPLICAS = 1_000
SHOWN_CHANGE = 0.0005  # share; smaller values print as 0.0 %
KEEP = "Keep the shares"
RETURNED = 0.5  # share of the distance to equal shares, per decision of a return
# A difference counts as chance within this share of the mean, because batches start and are scheduled at random, and
# within this many standard errors. A correction continues until this part of that limit.
CHANCE_SHARE, CHANCE_ERRORS, CORRECTED = 0.5, 2.0, 0.2
# An identified b below this part of the given one makes no loop faster: the difference then depends on other things.
# A greater b than this is that of an overloaded replica, and ends with the overload.
MIN_RATIO = 0.25
MAX_RATIO = 2.0
MIN_NOISE = 0.1  # of the resolution
IDENTIFIED = 9.0  # squared changes, in units of the squared noise
STEPS_OF_A = 20  # gains are designed for multiples of 1/20
STABLE_BELOW = 1 - 1e-9
# An overloaded replica responds later by an interval times the load beyond its capacity. At 60 % of the capacity of all
# replicas, the whole load is 0.6 times as much as each of them can process.
OVERLOADED = 0.6
USUAL_WEIGHT = 16.0  # r for b = 1


@dataclass(frozen=True)
class MeanModel:
    """The mean of the replicas' a and b, and the weight r."""

    a: float
    b: float
    r: float

    @classmethod
    def of(cls, parameters: BalanceParameters, replicas: int = 2) -> "MeanModel":
        """Return the given model, or the default one for this number of replicas."""
        usual = OVERLOADED * parameters.interval_seconds * replicas
        b = float(np.mean([*parameters.b_of.values()] or [usual if parameters.b is None else parameters.b]))
        r = USUAL_WEIGHT * b * b if parameters.r is None else parameters.r
        return cls(float(np.mean([*parameters.a_of.values()] or [parameters.a])), b, r)


def design_loop(parameters: BalanceParameters) -> Floats:
    """Return K, the M_j, and L of one loop with the mean of the models."""
    model = MeanModel.of(parameters)
    return design_one_loop(
        model.a, model.b, parameters.q, parameters.integral, model.r, parameters.delay, parameters.averaging
    )


def build_loop(parameters: BalanceParameters, delay: int) -> Floats:
    """Return the matrix of that loop if shares take effect after this delay."""
    model, gains = MeanModel.of(parameters), design_loop(parameters)
    pending = max(delay, parameters.delay) + parameters.averaging - 1
    system, inputs = build_system(np.array([[model.a]]), np.array([[model.b]]), delay, parameters.averaging, pending)
    older = np.zeros(pending + 2 - len(gains))
    return np.asarray(system - inputs @ [np.concatenate([gains[:-1], older, gains[-1:]])])


class Balance(Law[BalanceParameters, BalanceObservation, BalanceState]):
    """Controls the differences of response times by shares; see the module.

    In a state, replicas that no longer exist are ignored.
    """

    name = "balance"
    Parameters, Observation, State = BalanceParameters, BalanceObservation, BalanceState
    guard_defaults = {"stale_seconds": 10.0}

    def check(self, parameters: BalanceParameters) -> None:
        """Raise `BadInput` for gains that are unstable on the model with some delay: Xu's Figure 9."""
        model = MeanModel.of(parameters)
        for delay in range(MAX_DELAY + 1):
            radius = float(np.abs(np.linalg.eigvals(build_loop(parameters, delay))).max())
            if not radius < STABLE_BELOW:
                raise BadInput(
                    "parameters.r",
                    f"{model.r:g} is too low: shares that take effect after {delay} decisions make the loop unstable "
                    f"(spectral radius {radius:.4g}, must be less than 1); "
                    f"give r a higher value, such as {USUAL_WEIGHT * model.b**2:.3g}",
                )

    def check_observation(self, parameters: BalanceParameters, observation: BalanceObservation, where: str) -> None:
        """Raise `BadInput` for fewer than two replicas, or if their shares can't be spread.

        Also raise it if the maps or models have different replicas.
        """
        names, shares = list(observation.response_times_seconds), observation.shares
        if not 2 <= len(names) <= MAX_REPLICAS:
            raise BadInput(
                f"{where}.response_times_seconds", f"must have 2 to {MAX_REPLICAS} replicas, not {len(names)}"
            )
        for name in names:
            if name not in shares:
                raise BadInput(f"{where}.shares.{name}", "is missing; every replica with a response time needs a share")
        for name in shares:
            if name not in observation.response_times_seconds:
                raise BadInput(
                    f"{where}.shares.{name}", "has no response time; every replica with a share needs a response time"
                )
        if not sum(shares.values()) > 0:
            raise BadInput(f"{where}.shares", "must not sum to 0; give at least one replica a share")
        for key, models in (("a_of", parameters.a_of), ("b_of", parameters.b_of)):
            for name in models:
                if name not in observation.response_times_seconds:
                    raise BadInput(f"parameters.{key}.{name}", f"is not a replica; the replicas are {', '.join(names)}")
        if compute_minimum_share(parameters, len(names)) * len(names) > 1:
            raise BadInput(
                "parameters.minimum_share",
                f"must be at most {1 / len(names):.4g} with {len(names)} replicas, not {parameters.minimum_share:g}",
            )
        try:
            _design_gains(parameters, sorted(names), MeanModel.of(parameters).a)
        except BadInput as error:  # models too far apart for a regulator: the map is at fault, not a matrix
            raise BadInput("parameters.b_of", f"can't be combined with the other models: {error.message}") from None

    def resume(self, state: BalanceState) -> BalanceState:
        """Return a state with the identified model only: old differences and shares no longer apply."""
        return BalanceState(information=state.information)

    def correct(
        self, parameters: BalanceParameters, before: BalanceState, after: BalanceState, action: Values | None
    ) -> BalanceState:
        """Return the state for the shares in force, which the next change starts from."""
        if action:
            return after
        return replace(after, differences=before.differences, returning=before.returning, correcting=before.correcting)

    def decide(
        self, parameters: BalanceParameters, state: BalanceState, observation: BalanceObservation
    ) -> tuple[BalanceState, Decision]:
        """Return the shares of the next interval; their sum is that of the shares in force."""
        names = sorted(observation.response_times_seconds)
        response = np.array([observation.response_times_seconds[name] for name in names], dtype=float)
        shares = np.array([observation.shares[name] for name in names], dtype=float)
        total = float(shares.sum())
        state = _record(parameters, state, observation, names, response - response.mean(), shares / total)
        chance = _explain_chance(state, observation, response)
        why = _explain_return(parameters, state, observation, chance)
        if why is not None:
            equal = _move_towards_equal(shares, total)
            after = replace(state, differences={}, returning=bool((equal != shares).any()), correcting=False)
            return after, _return(names, shares, equal, why)
        if (held := observation.incomparable or chance) is not None:
            return replace(state, correcting=False), Decision(None, format_no_action(held), {"moved_share": 0.0})
        change, model = _compute_change(parameters, state, observation, names)
        wanted = shares + total * change
        spread = project_shares(wanted, compute_minimum_share(parameters, len(names)), total)
        decision = _build_decision(parameters, names, response, shares, wanted, spread, model)
        now = {name: past[0] for name, past in state.past_differences.items()}
        return replace(state, differences=now, returning=False, correcting=True), decision


LAW = Balance()


def compute_minimum_share(parameters: BalanceParameters, replicas: int) -> float:
    """Return the minimum share of a replica: the given one, or one that leaves shares to move at any number."""
    given = parameters.minimum_share
    return given if given is not None else min(MINIMUM_SHARE, MINIMUM_OF_EQUAL / replicas)


def project_shares(shares: Floats, minimum_share: float, total: float) -> Floats:
    """Return the nearest shares that sum to `total` and are at least `minimum_share` of it each."""
    free = total * (1 - minimum_share * len(shares))
    above = shares - minimum_share * total
    # Shares above the minimum are cut at one level, which is found among the largest first.
    ordered = np.sort(above)[::-1]
    levels = (np.cumsum(ordered) - free) / np.arange(1, len(shares) + 1)
    cut = np.flatnonzero(ordered - levels > 0)
    # If rounding loses the free part, the largest share takes it all.
    level = levels[cut[-1] if cut.size else 0] if free > 0 else np.inf
    projected = np.maximum(above - level, 0.0) + minimum_share * total
    projected[int(np.argmax(above))] += total - projected.sum()
    return np.asarray(projected)


def _record(
    parameters: BalanceParameters,
    state: BalanceState,
    observation: BalanceObservation,
    names: Sequence[str],
    differences: Floats,
    parts: Floats,
) -> BalanceState:
    """Return the state with this decision's differences and shares, and what they say about the model.

    The differences of replicas that do not report are unknown; then the record starts again.
    """
    for past in (state.past_differences, state.past_shares):
        if set(past) != set(names) or len({len(values) for values in past.values()}) != 1:
            state = replace(state, past_differences={}, past_shares={})
    if observation.incomparable is not None:
        return replace(state, past_differences={}, past_shares={})
    known = state.differences
    state = replace(
        state,
        # A new replica has no past, so its current difference is used for past decisions, too.
        differences={name: known.get(name, now) for name, now in zip(names, differences.tolist(), strict=True)},
        past_differences={
            name: (now, *state.past_differences.get(name, ()))[:PAST_DIFFERENCES]
            for name, now in zip(names, differences.tolist(), strict=True)
        },
        past_shares={
            name: (share, *state.past_shares.get(name, ()))[:PAST_SHARES]
            for name, share in zip(names, parts.tolist(), strict=True)
        },
    )
    if parameters.tuning == "fixed":
        return state
    return replace(state, information=_learn(parameters, state, observation, names))


def _learn(
    parameters: BalanceParameters, state: BalanceState, observation: BalanceObservation, names: Sequence[str]
) -> Information:
    """Return what is known about the model after this decision's differences and shares."""
    before, noise = state.information or Information(), _compute_noise(parameters, observation)
    past = np.array([state.past_differences[name] for name in names]).T
    moves = _list_moves(state, names)[parameters.delay :][: parameters.averaging]
    if len(past) < PAST_DIFFERENCES or len(moves) < parameters.averaging:
        return before
    pushed = MeanModel.of(parameters, len(names)).b * np.mean(moves, axis=0)
    return learn_changes(before, past[1] - past[2], pushed, past[0] - past[1], noise, parameters.forgetting)


def _list_moves(state: BalanceState, names: Sequence[str]) -> list[Floats]:
    """Return the earlier changes of the shares, newest first: v(k-1) - v(k-2), and so on."""
    past = np.array([state.past_shares[name] for name in names]).T
    return list(past[:-1] - past[1:])


def _compute_noise(parameters: BalanceParameters, observation: BalanceObservation) -> float:
    """Return the random variation of a difference, in s."""
    error = observation.error_seconds
    return parameters.resolution_seconds if error is None else max(error, MIN_NOISE * parameters.resolution_seconds)


def _identify(
    parameters: BalanceParameters, state: BalanceState, observation: BalanceObservation
) -> tuple[float, float]:
    """Return a, and b relative to the given one; as given until they are identified."""
    a = MeanModel.of(parameters).a
    if parameters.tuning == "fixed" or state.information is None:
        return a, 1.0
    return solve_model(state.information, a, _compute_noise(parameters, observation))


def _compute_change(
    parameters: BalanceParameters, state: BalanceState, observation: BalanceObservation, names: Sequence[str]
) -> tuple[Floats, tuple[float, float]]:
    """Return the change of the shares, as parts of their sum, and the model it is computed with."""
    a, ratio = _identify(parameters, state, observation)
    now = np.array([state.past_differences[name][0] for name in names])
    before = np.array([state.differences[name] for name in names])
    gains, moves = _design_gains(parameters, names, a), _list_moves(state, names)
    change = gains.change(now, before, min(max(ratio, MIN_RATIO), MAX_RATIO), moves)
    return change, (a, ratio * MeanModel.of(parameters, len(names)).b)


def _design_gains(parameters: BalanceParameters, names: Sequence[str], a: float) -> BalanceGains:
    """Return the gains for an identified a, which replaces all given ones."""
    given = [parameters.a_of.get(name, parameters.a) for name in names]
    model = MeanModel.of(parameters, len(names))
    if a != model.a:
        given = [round(a * STEPS_OF_A) / STEPS_OF_A] * len(names)
    return _get_cached_gains(
        tuple(given),
        tuple(parameters.b_of.get(name, parameters.b or model.b) for name in names),
        parameters.q,
        parameters.integral,
        model.r,
        parameters.delay,
        parameters.averaging,
    )


@lru_cache(maxsize=64)
def _get_cached_gains(
    a: tuple[float, ...], b: tuple[float, ...], q: float, integral: float, r: float, delay: int, averaging: int
) -> BalanceGains:
    """Return the gains; the same parameters reuse the same gains instead of designing them at each decision."""
    return design_balance_gains(np.array(a), np.array(b), q=q, integral=integral, r=r, delay=delay, averaging=averaging)


def _explain_chance(state: BalanceState, observation: BalanceObservation, response: Floats) -> str | None:
    """Return a reason if the slowest and the fastest replica differ only by random variation, else None."""
    if observation.error_seconds is None:
        return None
    limit = max(CHANCE_SHARE * float(response.mean()), CHANCE_ERRORS * observation.error_seconds)
    if float(np.ptp(response)) > limit * (CORRECTED if state.correcting else 1.0):
        return None
    return "the differences between the replicas are within random variation"


def _explain_return(
    parameters: BalanceParameters, state: BalanceState, observation: BalanceObservation, chance: str | None
) -> str | None:
    """Return why the shares have to be equal, or None."""
    if why := explain_low_load(parameters, observation) or observation.starved:
        return why
    if state.returning and (observation.incomparable or chance):
        return observation.incomparable or chance
    if observation.same_cores and chance:
        return "all replicas run on the same cores and none differs from the others, so shares have no effect"
    a, ratio = _identify(parameters, state, observation)
    whole = (
        ratio
        * MeanModel.of(parameters, len(observation.shares)).b
        / len(observation.shares)
        / max(1 - a, 1 / STEPS_OF_A)
    )
    least = IDENTIFIED * _compute_noise(parameters, observation) ** 2
    is_identified = state.information is not None and state.information.pushed > least
    if is_identified and whole < parameters.resolution_seconds:
        return f"a whole share changes a response time by {whole:.2g} s only, so shares have no effect"
    return None


def explain_low_load(parameters: BalanceParameters, observation: BalanceObservation) -> str | None:
    rate, least = observation.events_per_second, parameters.least_events_per_second
    if rate is not None and rate < least:
        return (
            f"the load of {format_number(rate)} events/s is too low to compare response times"
            f" (minimum: {format_number(least)})"
        )
    used, least = observation.utilisation, parameters.least_utilisation
    if used is not None and used < least:
        return f"no replica is busy for {format_percent(least)} of the time"
    return None


def _move_towards_equal(shares: Floats, total: float) -> Floats:
    """Return shares closer to equal, or equal shares if the rest would be invisible."""
    equal = np.full(len(shares), total / len(shares))
    if np.abs(shares - equal).max() < 2 * SHOWN_CHANGE * total:
        return equal
    return shares + RETURNED * (equal - shares)


def _return(names: list[str], before: Floats, shares: Floats, low: str) -> Decision:
    """Return the decision while nothing can be learned; no action if the shares are equal."""
    moved = float(np.abs(shares - before).sum() / 2)
    terms = {"moved_share": moved}
    if moved <= 1e-9 * float(before.sum()):
        return Decision(None, format_no_action(f"shares are equal; {low}"), terms)
    what = (
        "Return to equal shares"
        if _describe_action(names, before, shares) == KEEP
        else _describe_action(names, before, shares)
    )
    action = {"shares": dict(zip(names, shares.tolist(), strict=True))}
    return Decision(action, format_reason(what, f"return to equal shares, since {low}"), terms)


def _build_decision(
    parameters: BalanceParameters,
    names: list[str],
    response: Floats,
    before: Floats,
    wanted: Floats,
    shares: Floats,
    model: tuple[float, float],
) -> Decision:
    spread, mean = float(np.ptp(response)), float(response.mean())
    limited = bool(np.abs(shares - wanted).max() > 1e-9 * float(before.sum()))
    terms = {
        "mean_seconds": mean,
        "spread_seconds": spread,
        "moved_share": float(np.abs(shares - before).sum() / 2),
        "wanted": dict(zip(names, wanted.tolist(), strict=True)),
        "a": model[0],
        "b": model[1],
    }
    slow = names[int(np.argmax(response))]
    behind = f"{slow} responds {spread:.3g} s slower than the fastest replica"
    cause = behind if spread > 0 else f"the {format_count(len(names), 'replica')} respond equally fast"
    reason = format_reason(
        _describe_action(names, before, shares), cause, remarks=[f"mean response time: {mean:.3g} s"]
    )
    action = {"shares": dict(zip(names, shares.tolist(), strict=True))}
    expected = None
    if spread > max(parameters.resolution_seconds, WORTH_EXPECTING * mean):
        seconds = EXPECTED_INTERVALS * parameters.interval_seconds
        expected = Expectation("response_spread_seconds", "down", spread, seconds)
    return Decision(action, reason, terms, "minimum_share" if limited else None, expected=expected)


def _describe_action(names: Sequence[str], before: Floats, after: Floats) -> str:
    """Describe the action: the replica whose share changes most, and how many others change."""
    was, becomes = before / float(before.sum()), after / float(after.sum())
    changed = np.flatnonzero(np.abs(becomes - was) >= SHOWN_CHANGE)
    if not changed.size:
        return KEEP
    most = int(np.argmax(np.abs(becomes - was)))
    others = f" and {changed.size - 1} more" if changed.size > 2 else ""
    change = f"from {format_percent(was[most], 1)} to {format_percent(becomes[most], 1)}"
    return f"Set share of {names[most]} {change}{others}"
