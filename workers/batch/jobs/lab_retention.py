"""Retention of the lab: extracts, uploaded traces, and experiments beyond their age limit."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from workers.batch.jobs.job import ChunkResult, ChunkSpec, JobContext
from workers.batch.jobs.present_files import list_files_written_before
from workers.history import event_archive
from workers.lab.models import Experiment
from workers.lab.series import get_series_folder

EXTRACTS, EXPERIMENTS = "extracts", "experiments"


def iterate_chunks(where: JobContext, extract_days: int, experiment_days: int) -> Iterator[ChunkSpec]:
    """Return one chunk for files and one for experiments, where any are due. 0 days: none is ever due."""
    before = where.now - timedelta(days=extract_days)
    if extract_days and list_files_written_before(before, event_archive.iterate_extract_files(where.data)):
        yield ChunkSpec(EXTRACTS, {"kind": EXTRACTS, "before": before.isoformat()})
    before = where.now - timedelta(days=experiment_days)
    if experiment_days and _select_due_experiments(before).exists():
        yield ChunkSpec(EXPERIMENTS, {"kind": EXPERIMENTS, "before": before.isoformat()})


def _select_due_experiments(before: datetime) -> QuerySet[Experiment]:
    """Return old experiments whose run has ended."""
    return Experiment.objects.filter(created_at__lt=before).exclude(run__ended_at=None, run__isnull=False)


def _delete_extracts(lease: Any) -> ChunkResult:
    before = datetime.fromisoformat(lease.content["before"])
    due = list_files_written_before(before, event_archive.iterate_extract_files(lease.surroundings.data))
    for path in due:
        with lease.guard_transaction():
            path.unlink(missing_ok=True)
    return ChunkResult(len(due))


def _delete_experiments(lease: Any) -> ChunkResult:
    """Delete experiments, their files first: a crash in between leaves one without files for the next run."""
    before, deleted = datetime.fromisoformat(lease.content["before"]), 0
    for experiment in _select_due_experiments(before).order_by("pk"):
        folder = lease.surroundings.data / get_series_folder(experiment.pk)
        with lease.guard_transaction():
            if folder.exists():
                shutil.rmtree(folder)
            experiment.delete()
        deleted += 1
        lease.check({"rows": deleted, "share": None, "chunk": lease.chunk.identifier})
    return ChunkResult(deleted)


WORK: Mapping[str, Callable[[Any], ChunkResult]] = {EXTRACTS: _delete_extracts, EXPERIMENTS: _delete_experiments}
