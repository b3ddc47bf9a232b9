"""Shared parts of both methods of the manager law: its memory, the number of workers, and the reasons."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controllers.framework.decision import Json
from controllers.framework.law import Values
from controllers.framework.reason import NO_ACTION, format_count, format_number
from controllers.worker_rate.arrival_rate import ArrivalRate

# Rounding may leave a carry slightly below a whole number: 0.1 added ten times is 0.9999999999999999.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Manager:
    """The state of the law.

    Both methods use `rate` [workers/interval], `carry` (a fraction of a worker), and `history` (queue lengths). The
    others belong to the forecast: `arrivals` (None before two lengths are known), `executed` [workers/interval] the
    pool's pace, `cap` [workers/interval] while a TOOBUSY node is relieved, else None, `borne` [workers/interval] the
    node's capacity by that, `is_toobusy` whether it was TOOBUSY at the last evaluation, `waited_seconds` since a worker
    started while events wait, and `pledged` [events], the events that workers under way will take.
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
        """Return the state as JSON."""
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
    """The number of workers to start, the reason, the limit, and the terms behind it."""

    count: int
    reason: str
    limited_by: str | None
    terms: Mapping[str, Any]


def clip_rate(parameters: Values, rate: float) -> float:
    """Return a rate within minimum_rate and maximum_rate."""
    return float(min(max(rate, parameters["minimum_rate"]), parameters["maximum_rate"]))


def split_whole_part(due: float) -> tuple[int, float]:
    """Return the whole number of workers and the remaining fraction."""
    whole = math.floor(due + ROUNDING)
    return whole, max(0.0, due - whole)


def count_arrivals(manager: Manager, observation: Values) -> float | None:
    """Return the events inserted since the last observation: the growth of the queue plus those removed."""
    if not manager.history:
        return None
    return max(0.0, float(observation["queue_length"] - manager.history[-1] + observation["removed"]))


def explain_overload(parameters: Values, observation: Values) -> str | None:
    """Return why no worker may start: too many wait to run (4.2.1.2); None if they don't."""
    waiting, limit = observation["waiting_to_run"], parameters["maximum_waiting_to_run"]
    if waiting <= limit:
        return None
    return f"worker hosts are full; {wait_to_run(waiting)}, and the limit is {format_number(limit)}"


def explain_pool_delay(waiting: float, per_interval: float) -> str:
    """Return why no worker may start if the pool runs far fewer than are submitted."""
    return f"worker hosts are full; {wait_to_run(waiting)}, and only {format_number(per_interval)} start per interval"


def wait_to_run(workers: float) -> str:
    """Return how many workers wait to run, as a clause."""
    return f"{format_count(workers, 'worker')} wait{'s' if workers == 1 else ''} to run"


def describe_start(count: int) -> str:
    """Return the action in words."""
    return f"Start {format_count(count, 'worker')}" if count else NO_ACTION


def queue_remark(length: float) -> str:
    """Return the queue length as a remark."""
    return f"queue: {format_count(length, 'event')}"
