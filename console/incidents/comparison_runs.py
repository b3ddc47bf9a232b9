"""Runs of the Spark job that counts two ranges of the archive, if they are too large for a page."""

from datetime import UTC, datetime

from console.accounts.access import Actor
from console.actions import tasks
from console.incidents.differences import build_compared_ranges
from workers.batch import runs
from workers.batch.jobs.job import JobContext
from workers.history.stretch_counts import build_counts_name
from workers.history.stretches import TimeRange
from workers.models import Run

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
