"""What is different in a stretch of time: against the stretch before it, or the same hours of another day.

One comparison at a time in a process, with a budget of events and seconds: it runs in the process that serves
pages.
"""

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from controllers.diagnosis.differences import Difference, differences
from queues.errors import BadInput
from workers.history.stretches import ReadBudget, Stretch, figures_of, fold_rare

SHORTEST, LONGEST = timedelta(minutes=1), timedelta(hours=6)
AGAINST = {"before": "the stretch before", "day": "the same hours a day before", "week": "a week before"}
SHIFTS = {"day": 86_400.0, "week": 7 * 86_400.0}
MOST_ROWS = 60
_ONE_AT_A_TIME = threading.Lock()


class ComparisonRuns(BadInput):
    """Another comparison runs in this process."""


@dataclass(frozen=True)
class Comparison:
    """rows: beyond chance, the largest effect first; compared: how many values were tested."""

    here: Stretch
    there: Stretch
    rows: list[Difference]
    compared: int


def compare(since: datetime, until: datetime, against: str, queue: str, data: Path) -> Comparison:
    """Raises BadInput naming from, to or against; ComparisonRuns while another runs."""
    if against not in AGAINST:
        raise BadInput("against", f"takes {', '.join(AGAINST)}, not {against[:40]!r}.")
    if not SHORTEST <= until - since <= LONGEST:
        raise BadInput("to", "takes a time from 1 minute to 6 hours after from.")
    here = Stretch(since.timestamp(), until.timestamp())
    there = here.moved(SHIFTS.get(against, here.until - here.since))
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        raise ComparisonRuns("from", "waits for another comparison; try again in a few seconds.")
    try:
        return _compared(here, there, queue, data)
    finally:
        _ONE_AT_A_TIME.release()


def _compared(here: Stretch, there: Stretch, queue: str, data: Path) -> Comparison:
    budget = ReadBudget()
    ours, theirs = (figures_of(stretch, data, queue, budget) for stretch in (here, there))
    counts = {
        name: fold_rare(ours.counts.get(name, {}), theirs.counts.get(name, {}))
        for name in sorted({*ours.counts, *theirs.counts})
    }
    measures = {
        name: (ours.measures[name], theirs.measures[name])
        for name in ours.measures
        if name in theirs.measures
    }
    rows = differences(counts, measures)
    values = sum(len({*here_counts, *there_counts}) for here_counts, there_counts in counts.values())
    return Comparison(here, there, rows[:MOST_ROWS], values + len(measures))
