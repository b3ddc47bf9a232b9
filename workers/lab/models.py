"""Stored records of the lab: experiments and their results, until retention deletes them."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path

from django.conf import settings as configured
from django.db import models
from django.utils import timezone


class Experiment(models.Model):
    """A scenario with its laws, settings, and seed; running it again gives the same result.

    `trace`: null, or {"name", "column", "rows", "path"}; its numbers are copied into the experiment's folder,
    so that nothing else has to be kept for it. `path`: of its file, in the data folder; older ones have none.
    `queues`: the queues whose values its trace has, so that users who are limited to others don't see it; []
    without a trace, null if the queues aren't known.
    `figure`: the table or figure of a paper that it reproduces. Its `laws` are then names of runs, and `runs` has
    {name: {"law", "settings"}}. `seeds`: the number of seeds from `seed` on; results are their means.
    """

    owner = models.ForeignKey(configured.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    scenario = models.CharField(max_length=60)
    title = models.CharField(max_length=120, default="", blank=True)
    laws = models.JSONField()
    settings = models.JSONField(default=dict)
    seed = models.PositiveBigIntegerField(default=1)
    figure = models.CharField(max_length=60, default="", blank=True)
    runs = models.JSONField(default=dict)
    seeds = models.PositiveSmallIntegerField(default=1)
    trace = models.JSONField(null=True, default=None)
    queues = models.JSONField(null=True, default=list)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    run = models.OneToOneField(
        "workers.Run", on_delete=models.SET_NULL, null=True, default=None, related_name="experiment"
    )

    def __str__(self) -> str:
        return f"experiment {self.pk}: {self.scenario}"


class ExperimentResult(models.Model):
    """The result of one law: {metric: number or null}.

    Its series are next to the trace, under the law's name. `bands`: {metric: [low, high]} over several seeds.
    """

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="results")
    law = models.CharField(max_length=60)
    metrics = models.JSONField(default=dict)
    bands = models.JSONField(default=dict)
    seconds = models.FloatField(help_text="duration of the simulation")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["experiment", "law"], name="a_law_once_an_experiment")]

    def __str__(self) -> str:
        return f"{self.law} of experiment {self.experiment_id}"


def select_due_experiments(before: datetime) -> models.QuerySet[Experiment]:
    """Return old experiments whose run has ended."""
    return Experiment.objects.filter(created_at__lt=before).exclude(run__ended_at=None, run__isnull=False)


def expire_experiments(
    data: Path, before: datetime, guarded: Callable[[], AbstractContextManager[None]]
) -> Iterator[int]:
    """Delete experiments, their files first: a crash in between leaves one without files for the next run."""
    from workers.lab.series import get_series_folder  # Every process loads the models; not all need NumPy.

    for experiment in select_due_experiments(before).order_by("pk"):
        folder = data / get_series_folder(experiment.pk)
        with guarded():
            if folder.exists():
                shutil.rmtree(folder)
            experiment.delete()
        yield 1
