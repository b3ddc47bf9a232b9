"""The job that folds runs of ledger entries that did nothing, loop by loop (`ledger.folds`)."""

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime, timedelta

from common.parameter import Parameter
from workers.batch.job import ChunkResult, ChunkSpec, HeldChunk, Job, JobContext, Values, Work
from workers.control.ledger import folds
from workers.models import Loop

NAME = "ledger_folding"
PARAMETERS = (
    Parameter(
        "hours",
        "",
        "past hours to process, in addition to the last three; increase it after the job was disabled",
        6,
        1,
        87_600,
        kind="integer",
    ),
)


def iterate_chunks(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return one chunk: one per loop could be more rows than folding removes."""
    before = where.now - folds.AFTER
    since = before - timedelta(hours=values["hours"])
    yield ChunkSpec("ledger", {"since": since.isoformat(), "before": before.isoformat()})


def open_job(where: JobContext) -> nullcontext[Work]:
    return nullcontext(work)


def work(lease: HeldChunk) -> ChunkResult:
    """Fold each run in its own transaction, so that no tick waits for more than one of them."""
    since, before = (datetime.fromisoformat(lease.content[name]) for name in ("since", "before"))
    rows = 0
    for loop in Loop.objects.order_by("pk").iterator():
        for count in folds.fold(loop, since, before, lease.guard_transaction):
            rows += count
            lease.check({"rows": rows, "share": None, "chunk": lease.identifier})
    return ChunkResult(rows)


JOBS = (
    Job(
        NAME,
        "Combines consecutive decisions without an action into one ledger entry, without loss.",
        PARAMETERS,
        open_job,
        pieces=iterate_chunks,
        crontab="25 * * * *",
    ),
)
