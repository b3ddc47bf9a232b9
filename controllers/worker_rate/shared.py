"""What both methods of the manager law share: its memory, how many workers start, and the words for it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controllers.framework.decision import Json
from controllers.framework.law import Values
from controllers.worker_rate.arrival_rate import ArrivalRate

# A carry that should be whole may be short of it by rounding: 0.1 added ten times is 0.9999999999999999.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Manager:
    """The state of the law.

    `rate` [workers/interval], `carry` (a fraction of a worker) and `history` (queue lengths) are both
    methods'; the rest is the forecast's: `arrivals` (None before two lengths are known), `executed`
    [workers/interval] the pool's pace, `cap` [workers/interval] while a TOOBUSY node is spared, else None,
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
        }


@dataclass(frozen=True)
class Start:
    """How many workers start, why in a sentence, what kept it from being more, and the terms behind it."""

    count: int
    because: str
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
    return (
        f"{number(waiting)} workers are submitted and do not run yet, over the limit of {number(limit)}: the "
        f"worker hosts are full, so no more start and the rate stays. {waits(observation['queue_length'])}."
    )


def number(value: float) -> str:
    """1,234 or 12.3."""
    return f"{value:,.0f}" if float(value).is_integer() or value >= 1_000 else f"{value:,.1f}"


def waits(length: float) -> str:
    """How many events wait, in words."""
    return "1 event waits" if length == 1 else f"{number(length)} events wait"


def starting(count: int) -> str:
    """How many workers start, in words."""
    return {0: "No worker starts.", 1: "1 worker starts."}.get(count, f"{count:,} workers start.")


def sentence(notes: Sequence[str]) -> str:
    """Notes as one sentence without its full stop."""
    text = "; ".join(notes)
    return text[0].upper() + text[1:]
