"""What both methods of the manager law share: its memory, how many workers start, and why in words."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controllers.framework.decision import Json
from controllers.framework.law import Values
from controllers.framework.reason import NO_ACTION, counted, number
from controllers.worker_rate.arrival_rate import ArrivalRate

# A carry that should be whole may be short of it by rounding: 0.1 added ten times is 0.9999999999999999.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Manager:
    """The state of the law.

    `rate` [workers/interval], `carry` (a fraction of a worker) and `history` (queue lengths) are both
    methods'; the rest is the forecast's: `arrivals` (None before two lengths are known), `executed`
    [workers/interval] the pool's pace, `cap` [workers/interval] while a TOOBUSY node is relieved, else None,
    `borne` [workers/interval] what it bears by that, `is_toobusy` whether it was at the last evaluation,
    `waited_seconds` since a worker started while events wait, and `pledged` [events], what workers that are
    under way will take.
    """

    rate: float
    carry: float
    history: tuple[float, ...]
    arrivals: ArrivalRate | None = None
    executed: float = 0.0
    cap: float | None = None
    waited_seconds: float = 0.0
    pledged: float = 0.0
    borne: float | None = None
    is_toobusy: bool = False

    def to_json(self) -> dict[str, Json]:
        """The state as a law gives it back."""
        return {
            "rate": self.rate,
            "carry": self.carry,
            "history": list(self.history),
            "arrivals": None if self.arrivals is None else self.arrivals.to_json(),
            "executed": self.executed,
            "cap": self.cap,
            "waited_seconds": self.waited_seconds,
            "pledged": self.pledged,
            "borne": self.borne,
            "is_toobusy": self.is_toobusy,
        }


@dataclass(frozen=True)
class Start:
    """How many workers start, the reason, what kept it from being more, and the terms behind it."""

    count: int
    reason: str
    limited_by: str | None
    terms: Mapping[str, Any]


def bounded(parameters: Values, rate: float) -> float:
    """A rate within minimum_rate and maximum_rate."""
    return float(min(max(rate, parameters["minimum_rate"]), parameters["maximum_rate"]))


def whole_part(due: float) -> tuple[int, float]:
    """The workers that have added up, and the fraction that stays."""
    whole = math.floor(due + ROUNDING)
    return whole, max(0.0, due - whole)


def arrived(manager: Manager, observation: Values) -> float | None:
    """Events inserted since the observation before: what the queue grew by, and what was removed."""
    if not manager.history:
        return None
    return max(0.0, float(observation["queue_length"] - manager.history[-1] + observation["removed"]))


def overloaded(parameters: Values, observation: Values) -> str | None:
    """Why no worker may start: too many wait to run (4.2.1.2); None when they don't."""
    waiting, limit = observation["waiting_to_run"], parameters["maximum_waiting_to_run"]
    if waiting <= limit:
        return None
    return f"{_wait_to_run(waiting)}, limit {number(limit)}: worker hosts are full"


def pool_behind(waiting: float, per_interval: float) -> str:
    """Why no worker may start when the pool runs far fewer than are submitted."""
    return (
        f"{_wait_to_run(waiting)}, and only {number(per_interval)} begin per interval: worker hosts are full"
    )


def _wait_to_run(workers: float) -> str:
    return f"{counted(workers, 'worker')} wait{'s' if workers == 1 else ''} to run"


def starting(count: int) -> str:
    """The action, in words."""
    return f"Start {counted(count, 'worker')}" if count else NO_ACTION


def queue_remark(length: float) -> str:
    """The queue length, as a remark."""
    return f"queue: {counted(length, 'event')}"
