"""What is different in a stretch of time: against the stretch before it, or the same hours of another day."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from controllers.diagnosis.differences import Difference, differences
from queues.errors import BadInput
from workers.history.stretches import Stretch, StretchFigures, figures_of

SHORTEST, LONGEST = timedelta(minutes=1), timedelta(hours=6)
AGAINST = {"before": "the stretch before", "day": "the same hours a day before", "week": "a week before"}
SHIFTS = {"day": 86_400.0, "week": 7 * 86_400.0}
MOST_ROWS = 60


@dataclass(frozen=True)
class Comparison:
    """rows: beyond chance, the largest effect first; compared: how many values were tested."""

    here: Stretch
    there: Stretch
    rows: list[Difference]
    compared: int


def compare(since: datetime, until: datetime, against: str, queue: str, data: Path) -> Comparison:
    """Raises BadInput naming from, to or against."""
    if against not in AGAINST:
        raise BadInput("against", f"takes {', '.join(AGAINST)}, not {against[:40]!r}.")
    if not SHORTEST <= until - since <= LONGEST:
        raise BadInput("to", "takes a time from 1 minute to 6 hours after from.")
    here = Stretch(since.timestamp(), until.timestamp())
    there = here.moved(SHIFTS.get(against, here.until - here.since))
    ours, theirs = figures_of(here, data, queue), figures_of(there, data, queue)
    counts = {
        name: (ours.counts.get(name, {}), theirs.counts.get(name, {}))
        for name in sorted({*ours.counts, *theirs.counts})
    }
    measures = {
        name: (ours.measures[name], theirs.measures[name])
        for name in ours.measures
        if name in theirs.measures
    }
    rows = differences(counts, measures)
    return Comparison(here, there, rows[:MOST_ROWS], _values(ours, theirs) + len(measures))


def _values(ours: StretchFigures, theirs: StretchFigures) -> int:
    dimensions = {*ours.counts, *theirs.counts}
    return sum(len({*ours.counts.get(name, {}), *theirs.counts.get(name, {})}) for name in dimensions)
