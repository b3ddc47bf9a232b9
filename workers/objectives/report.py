"""The causes of a burnt error budget: its hours, subjects, and incidents."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workers.objectives.book import MINUTE_SECONDS, MINUTES_PER_DAY
from workers.objectives.error_budget import Floats
from workers.objectives.models import Objective
from workers.steering.prices import Prices, compute_cost, load_prices

MINUTES_PER_HOUR = 60
MAX_ROWS = 10


@dataclass(frozen=True)
class HourCount:
    """The counts of an hour that starts `at` (s since 1970)."""

    at: float
    bad: float
    total: float


@dataclass(frozen=True)
class SubjectBurn:
    """The part of the bad amount at one subject."""

    subject: str
    bad: float


@dataclass(frozen=True)
class IncidentSpan:
    """An alert and its time range, in s since 1970; `until` None: it is open."""

    alert: int
    title: str
    since: float
    until: float | None


@dataclass(frozen=True)
class IncidentBurn:
    """The bad amount during an incident. Overlapping incidents both count it."""

    incident: IncidentSpan
    bad: float


@dataclass(frozen=True)
class BurnReport:
    """The causes of a burnt budget. `hours`: those with any count, the oldest first; the others: the worst first.

    cost: of the bad amount at the plant's prices; None without a price, or for events that were late but not lost.
    """

    bad: float
    total: float
    cost: float | None
    hours: Sequence[HourCount]
    subjects: Sequence[SubjectBurn]
    incidents: Sequence[IncidentBurn]


def report(objective: Objective, now_seconds: float, incidents: Iterable[IncidentSpan]) -> BurnReport:
    """Return the report of the objective's window up to now, as far as its minutes are written."""
    last = int(now_seconds // MINUTE_SECONDS)
    rows = objective.minutes.filter(minute__gt=last - objective.window_days * MINUTES_PER_DAY, minute__lte=last)
    table = np.array(rows.order_by("minute").values_list("minute", "bad", "total"), dtype=float).reshape(-1, 3)
    minutes, bad, total = table[:, 0].astype(np.int64), table[:, 1], table[:, 2]
    hours, place = np.unique(minutes // MINUTES_PER_HOUR, return_inverse=True)
    sums = [np.bincount(place, weights=minute_row, minlength=hours.size) for minute_row in (bad, total)]
    counted = [
        HourCount(float(hour * MINUTES_PER_HOUR * MINUTE_SECONDS), float(wrong), float(whole))
        for hour, wrong, whole in zip(hours, *sums, strict=True)
    ]
    burnt = [
        IncidentBurn(incident, _count_during_incident(minutes, bad, incident, now_seconds)) for incident in incidents
    ]
    return BurnReport(
        float(bad.sum()),
        float(total.sum()),
        _compute_cost(objective, float(bad.sum()), load_prices()),
        counted,
        _group_by_subject(objective, rows.filter(bad__gt=0).values_list("burnt", flat=True), float(bad.sum())),
        sorted((incident for incident in burnt if incident.bad > 0), key=lambda incident: -incident.bad)[:MAX_ROWS],
    )


def _compute_cost(objective: Objective, bad: float, prices: Prices) -> float | None:
    if objective.lost:
        return compute_cost(bad, prices.lost_event)
    return None if objective.of else compute_cost(bad, prices.get_delay_second_price(objective.name))


def _group_by_subject(objective: Objective, burnt: Iterable[dict[str, float]], whole: float) -> list[SubjectBurn]:
    """Group by subject; an objective about one subject was missed there alone."""
    if objective.subject or objective.kind == Objective.Kind.PLANT:
        return [SubjectBurn(objective.subject or "the plant", whole)] if whole > 0 else []
    sums: dict[str, float] = {}
    for incident in burnt:
        for name, bad in incident.items():
            sums[name] = sums.get(name, 0.0) + bad
    burns = [SubjectBurn(name, bad) for name, bad in sums.items()]
    return sorted(burns, key=lambda incident: -incident.bad)[:MAX_ROWS]


def _count_during_incident(
    minutes: npt.NDArray[np.int64], bad: Floats, incident: IncidentSpan, now_seconds: float
) -> float:
    """Count the bad amount of the minutes that an incident touches."""
    until = now_seconds if incident.until is None else incident.until
    first, last = incident.since // MINUTE_SECONDS, until // MINUTE_SECONDS
    return float(bad[(minutes >= first) & (minutes <= last)].sum())
