"""The balance law: shares of the load for N replicas, so that all have the mean response time.

The law follows Xu, 3.2. It controls the differences d_i = R_i - mean(R). The sum of the shares is constant, so N - 1 of
them are free (for two replicas one: a single controller). With the columns of T' an orthonormal basis of vectors that
sum to 0, a replica's model R_i(k+1) = a_i·R_i(k) + b_i·share_i(k), shares as parts of their sum, gives

    x(k+1) = T·diag(a)·T'·x(k) + T·diag(b)·T'·v(k)        d = T'x, shares = start + T'v
    i(k+1) = i(k) + x(k)                                   integrators: they remove a constant difference

(the integrators also handle what the mean adds to the differences of unlike replicas). The regulator minimizes Σ q·|x|²
+ integral·|i|² + r·|v|²; v = -K·x - L·i is applied as a change of the shares in force,

    share(k) = share(k-1) - K·(d(k) - d(k-1)) - L·d(k-1)

so that a share at its limit causes no windup (ERRATA E6 for the flow law). Identical replicas decouple into N - 1 equal
loops of two states with a closed-form optimum; different ones are solved by structured doubling
(`controllers.design.lqr`).

The load has to be sufficient, where it is known. With few events the response time is that of the batch itself, and a
share that followed it would drift to its limit. So below `least_events_per_second`, and while no replica is busy for
`least_utilisation` of the time, the shares return to equal, by half of the distance at each decision, and differences
start again. The same applies to a replica that reports nothing because its share is so small (`starved`). With enough
load, shares stay unchanged while the response times are not comparable (`incomparable`); a return that has started
continues.
"""

import cmath
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
import scipy

from common.errors import BadInput
from common.parameter import value
from controllers.design.lqr import design_regulator
from controllers.framework.decision import Decision, Expectation
from controllers.framework.law import Law, Values
from controllers.framework.reason import format_count, format_no_action, format_number, format_percent, format_reason

Floats = npt.NDArray[np.float64]
A = value("1", "Model: share of a response time that remains at the next decision.", 0.0, 1.2)
B = value("s per share of all", "Model: effect of the whole load.", 1e-9, 1e9)


class BalanceParameters(msgspec.Struct, frozen=True, kw_only=True):
    a: Annotated[float, A] = 0.5
    b: Annotated[float, B] = 1.0
    q: Annotated[float, value("1/s²", "Weight of a difference.", 0.0, 1e9)] = 1.0
    integral: Annotated[float, value("1/s²", "Weight of a lasting difference.", 1e-9, 1e9)] = 0.25
    r: Annotated[
        float, value("1/share²", "Weight of a change of shares; higher values change shares less.", 1e-9, 1e12)
    ] = 4.0
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
    starved: Annotated[str | None, value("sentence", "Replicas whose share is too small for a report; null: none.")] = (
        None
    )


class BalanceState(msgspec.Struct, frozen=True, kw_only=True):
    differences: Annotated[
        dict[str, Annotated[float, value("s", "Difference of a replica.", -1e9, 1e9)]],
        value("s", "Last differences.", required=True),
    ] = {}
    returning: Annotated[bool, value("flag", "True: the shares are returning to equal.")] = False


MINIMUM_SHARE, MINIMUM_OF_EQUAL = 0.02, 0.5  # default without a parameter
WORTH_EXPECTING = 0.1
EXPECTED_INTERVALS = 10
MAX_REPLICAS = 1_000
SHOWN_CHANGE = 0.0005  # share; smaller values print as 0.0 %
KEEP = "Keep the shares"
RETURNED = 0.5  # share of the distance to equal shares, per decision of a return


@dataclass(frozen=True)
class BalanceGains:
    """K and L of the module docstring: numbers for identical replicas, otherwise N by N matrices."""

    difference: Floats
    lasting: Floats

    def change(self, now: Floats, before: Floats) -> Floats:
        """Return the change of the shares; it sums to 0."""
        change = -np.dot(self.difference, now - before) - np.dot(self.lasting, before)
        return np.asarray(change - change.mean())


def design_balance_gains(a: Floats, b: Floats, *, q: float, integral: float, r: float) -> BalanceGains:
    """Return the gains of the regulator for replicas with these models, one element each."""
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        k, lasting = compute_decoupled_gains(float(a[0]), float(b[0]), q=q, integral=integral, r=r)
        return BalanceGains(np.array(k), np.array(lasting))
    basis, states = build_difference_basis(len(a)), len(a) - 1
    gain = design_regulator(*build_difference_system(a, b, q=q, integral=integral, r=r)).gain
    return BalanceGains(basis.T @ gain[:, :states] @ basis, basis.T @ gain[:, states:] @ basis)


def build_difference_basis(replicas: int) -> Floats:
    """Return T, an orthonormal basis of vectors that sum to 0: N - 1 rows of N."""
    return np.asarray(scipy.linalg.helmert(replicas))


def build_difference_system(
    a: Floats, b: Floats, *, q: float, integral: float, r: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return A, B, Q, R of the module docstring: states x and i, inputs v."""
    basis, size = build_difference_basis(len(a)), len(a) - 1
    nothing, one = np.zeros((size, size)), np.eye(size)
    system = np.block([[(basis * a) @ basis.T, nothing], [one, one]])
    inputs = np.vstack([(basis * b) @ basis.T, nothing])
    return system, inputs, scipy.linalg.block_diag(q * one, integral * one), r * one


def compute_decoupled_gains(a: float, b: float, *, q: float, integral: float, r: float) -> tuple[float, float]:
    """Return K and L of one decoupled loop in closed form, by spectral factorization.

    The optimal poles are the z within the unit circle with, for w = z + 1/z,

        r·(1 + a² - a·w)(2 - w) + b²·(q·(2 - w) + integral) = 0

    a quadratic in w; and (z - a)(z - 1) + b·K·(z - 1) + b·L has them.
    """
    quadratic = [r * a, -(r * (1 + a) ** 2 + b * b * q), 2 * r * (1 + a * a) + b * b * (2 * q + integral)]
    first, second = (_find_stable_root(w) for w in _roots(*quadratic))
    proportional = (1 + a - (first + second).real) / b
    return proportional, ((first * second).real - a) / b + proportional


def _roots(square: float, linear: float, constant: float) -> tuple[complex, complex | None]:
    """Return both zeros, computing the larger first to avoid cancellation; None: infinite."""
    half = (-linear + cmath.sqrt(linear * linear - 4 * square * constant)) / 2
    return constant / half, (half / square if square > 1e-100 * abs(half) else None)


def _find_stable_root(w: complex | None) -> complex:
    if w is None:
        return 0j
    root = cmath.sqrt(w * w - 4)
    return 2 / max(w + root, w - root, key=abs)


class Balance(Law[BalanceParameters, BalanceObservation, BalanceState]):
    """Controls the differences of response times by shares; see the module.

    The regulator is stable on every model, so all parameters are accepted. In a state, replicas that no longer exist
    are ignored.
    """

    name = "balance"
    Parameters, Observation, State = BalanceParameters, BalanceObservation, BalanceState
    guard_defaults = {"stale_seconds": 10.0}

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
            _design_gains(parameters, sorted(names))
        except BadInput as error:  # models too far apart for a regulator: the map is at fault, not a matrix
            raise BadInput("parameters.b_of", f"can't be combined with the other models: {error.message}") from None

    def correct(
        self, parameters: BalanceParameters, before: BalanceState, after: BalanceState, action: Values | None
    ) -> BalanceState:
        """Return the state for the shares in force, which the next change starts from."""
        return after if action else before

    def decide(
        self, parameters: BalanceParameters, state: BalanceState, observation: BalanceObservation
    ) -> tuple[BalanceState, Decision]:
        """Return the shares of the next interval; their sum is that of the shares in force."""
        times = observation.response_times_seconds
        names = sorted(times)
        response = np.array([times[name] for name in names], dtype=float)
        shares = np.array([observation.shares[name] for name in names], dtype=float)
        now = response - response.mean()
        total = float(shares.sum())
        why = explain_low_load(parameters, observation) or observation.starved
        if why := why or (observation.incomparable if state.returning else None):
            equal = _move_towards_equal(shares, total)
            return BalanceState(returning=bool((equal != shares).any())), _return(names, shares, equal, why)
        if observation.incomparable is not None:
            return state, Decision(None, format_no_action(observation.incomparable), {"moved_share": 0.0})
        # A new replica has no past: its present difference counts as lasting.
        before = np.array(
            [state.differences.get(name, difference) for name, difference in zip(names, now, strict=True)]
        )
        wanted = shares + total * _design_gains(parameters, names).change(now, before)
        spread = project_shares(wanted, compute_minimum_share(parameters, len(names)), total)
        decision = _build_decision(parameters, names, response, shares, wanted, spread)
        return BalanceState(differences=dict(zip(names, now.tolist(), strict=True))), decision


LAW = Balance()


def compute_minimum_share(parameters: BalanceParameters, replicas: int) -> float:
    """Return the minimum share of a replica.

    It is as given, or one that leaves shares to move for any number of replicas.
    """
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


def _design_gains(parameters: BalanceParameters, names: Sequence[str]) -> BalanceGains:
    return _get_cached_gains(
        tuple(parameters.a_of.get(name, parameters.a) for name in names),
        tuple(parameters.b_of.get(name, parameters.b) for name in names),
        parameters.q,
        parameters.integral,
        parameters.r,
    )


@lru_cache(maxsize=16)
def _get_cached_gains(a: tuple[float, ...], b: tuple[float, ...], q: float, integral: float, r: float) -> BalanceGains:
    """Return the gains; the same parameters reuse the same gains instead of designing them at each decision."""
    return design_balance_gains(np.array(a), np.array(b), q=q, integral=integral, r=r)


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
    parameters: BalanceParameters, names: list[str], response: Floats, before: Floats, wanted: Floats, shares: Floats
) -> Decision:
    spread, mean = float(np.ptp(response)), float(response.mean())
    limited = bool(np.abs(shares - wanted).max() > 1e-9 * float(before.sum()))
    terms = {
        "mean_seconds": mean,
        "spread_seconds": spread,
        "moved_share": float(np.abs(shares - before).sum() / 2),
        "wanted": dict(zip(names, wanted.tolist(), strict=True)),
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
