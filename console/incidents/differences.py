"""The differences of a time range: compared with the range before it, or the same hours of another day.

One comparison at a time in a process, with a budget of events and seconds, since it runs in the process that serves
pages. Longer ranges are counted by a Spark job (`stretch_comparison`), whose result is then used.
"""

import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from common import checks
from common.errors import BadInput
from console.accounts.access import Actor
from console.actions import tasks
from controllers.diagnosis.differences import Difference, find_differences
from workers.batch import runs
from workers.batch.job import JobContext
from workers.history.stretches import (
    INSTEAD,
    ReadBudget,
    ReadLimitExceeded,
    TimeRange,
    build_counts_name,
    compute_range_figures,
    count_with_snapshots,
    fold_rare,
    read_counts,
)
from workers.models import Run

MIN_RANGE, MAX_RANGE, MAX_READ = timedelta(minutes=1), timedelta(days=7), timedelta(hours=6)
AGAINST = {"before": "the previous range", "day": "the same time a day earlier", "week": "a week earlier"}
SHIFTS = {"day": timedelta(days=1), "week": timedelta(days=7)}
MAX_ROWS = 60
_ONE_AT_A_TIME = threading.Lock()


class ComparisonRuns(BadInput):
    """Another comparison is running in this process."""


@dataclass(frozen=True)
class Comparison:
    """A comparison of values.

    rows: significant differences, in the order of `differences`. compared: number of values tested.
    counted_at: when Spark counted the archived events, None if they were read just now.
    """

    here: TimeRange
    there: TimeRange
    rows: list[Difference]
    compared: int
    counted_at: datetime | None


def build_compared_ranges(since: datetime, until: datetime, against: str) -> tuple[TimeRange, TimeRange]:
    """Return the range and its reference, in whole seconds. Raises `BadInput` that names to or against."""
    if against not in AGAINST:
        raise BadInput("against", f"must be one of {', '.join(AGAINST)}, not {against[:40]!r}.")
    longest = min(MAX_RANGE, SHIFTS.get(against, MAX_RANGE))
    if not MIN_RANGE <= until - since <= longest:
        days = "1 day" if longest.days == 1 else f"{longest.days} days"
        raise BadInput("to", f"must be 1 minute to {days} after from.")
    here = TimeRange(float(int(since.timestamp())), float(int(until.timestamp())))
    shift = SHIFTS[against].total_seconds() if against in SHIFTS else here.until - here.since
    return here, here.shift(shift)


def compare(since: datetime, until: datetime, against: str, queue: str, data: Path) -> Comparison:
    """Compare the ranges.

    Raises `BadInput` that names from, to, against, or queue; `ReadLimitExceeded` if Spark must count first;
    `ComparisonRuns` while another runs.
    """
    here, there = build_compared_ranges(since, until, against)
    if queue and not checks.QUEUE_NAME.match(queue):
        raise BadInput("queue", "must be the name of a queue.")
    counted = read_counts(data, queue, here, there)
    if counted is None and until - since > MAX_READ:
        raise ReadLimitExceeded("to", f"must span at most 6 hours. {INSTEAD}")
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        raise ComparisonRuns("from", "can't be compared while another comparison runs. Try again in a few seconds.")
    try:
        budget = ReadBudget()
        if counted is None:
            # An archive has all keys, a sample the most frequent: if a queue is archived in only one range, the
            # keys sampled in both are compared.
            both = here.list_archived_queues(data) & there.list_archived_queues(data)
            ours, theirs = (compute_range_figures(stretch, data, queue, budget, both) for stretch in (here, there))
        else:
            ours = count_with_snapshots(counted.here, here, data, queue, budget)
            theirs = count_with_snapshots(counted.there, there, data, queue, budget)
        counts = {
            name: fold_rare(ours.counts.get(name, {}), theirs.counts.get(name, {}))
            for name in sorted({*ours.counts, *theirs.counts})
        }
        measures = {
            name: (ours.measures[name], theirs.measures[name]) for name in ours.measures if name in theirs.measures
        }
        rows = find_differences(counts, measures)
        values = sum(len({*here_counts, *there_counts}) for here_counts, there_counts in counts.values())
        counted_at = counted.made_at if counted else None
        return Comparison(here, there, rows[:MAX_ROWS], values + len(measures), counted_at)
    finally:
        _ONE_AT_A_TIME.release()


JOB = "stretch_comparison"
REASON = "The compared time ranges are too long for a page."


def find_last_run(queue: str, here: TimeRange, there: TimeRange) -> Run | None:
    """Return the last run of the job on exactly these ranges."""
    chunk = f"comparison={build_counts_name(queue, here, there)}"
    asked = Run.objects.filter(task__job=JOB, chunks__identifier=chunk)
    return asked.select_related("task", "owner").order_by("-pk").first()


def begin_count(actor: Actor, since: datetime, until: datetime, against: str, queue: str, where: JobContext) -> Run:
    """Return the open run that counts them, or start one, audited like any run of a task.

    Raises `PermissionDenied`; `BadInput` that names the field.
    """
    here, there = build_compared_ranges(since, until, against)
    going_on = find_last_run(queue, here, there)
    if going_on is not None and going_on.state in runs.OPEN:
        return going_on
    values = {
        "queue": queue or None,
        "since": _format_iso_time(here.since),
        "until": _format_iso_time(here.until),
        "other_since": _format_iso_time(there.since),
    }
    return tasks.begin(actor, JOB, values, None, REASON, where)


def _format_iso_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
