"""A node's state from its utilization: smoothed, with hysteresis. Houtman, chapter 4 (eq. 4.1)."""

from dataclasses import dataclass

IDLE, NORMAL, BUSY, TOOBUSY, OFFLINE = "IDLE", "NORMAL", "BUSY", "TOOBUSY", "OFFLINE"
STATES = (IDLE, NORMAL, BUSY, TOOBUSY, OFFLINE)  # from good to bad
OVERLOADED = (BUSY, TOOBUSY)
SILENT = (OFFLINE, None)  # no longer heard from, or never
LEVELS = (NORMAL, BUSY, TOOBUSY)


@dataclass(frozen=True)
class StateThresholds:
    """Shares of capacity at which a state starts, and how far below it the value must fall to end the state.

    `release_ratio` is the thesis' example, up at 50 % and down at 35 %, as a ratio. `alpha` is the weight of the newest
    measurement in the smoothing.
    """

    busy: float = 0.7
    toobusy: float = 0.9
    release_ratio: float = 35 / 50
    alpha: float = 0.5


@dataclass(frozen=True)
class NodeState:
    """State and smoothed utilization (a share of capacity; None before the first measurement)."""

    state: str = NORMAL
    utilisation: float | None = None


def smooth(newest: float, before: float | None, alpha: float) -> float:
    """Return V = alpha·NV + (1 - alpha)·OV (eq. 4.1); the first measurement is its own average."""
    return newest if before is None else alpha * newest + (1 - alpha) * before


def step(before: NodeState, raw: float, has_points: bool, thresholds: StateThresholds) -> NodeState:
    """Return the state after a measurement `raw` (the maximum of the parts, a share of capacity).

    A state starts when the smoothed value reaches its threshold and ends when it is below threshold * release_ratio; in
    between, the previous state stays. A node without points is IDLE, whatever else it does.
    """
    value = smooth(raw, before.utilisation, thresholds.alpha)
    if not has_points:
        return NodeState(IDLE, value)
    held = LEVELS.index(before.state) if before.state in LEVELS else 0
    reached = _compute_load_level(value, thresholds.busy, thresholds.toobusy)
    ratio = thresholds.release_ratio
    kept = _compute_load_level(value, thresholds.busy * ratio, thresholds.toobusy * ratio)
    return NodeState(LEVELS[max(reached, min(held, kept))], value)


def _compute_load_level(value: float, busy: float, toobusy: float) -> int:
    return 2 if value >= toobusy else 1 if value >= busy else 0
