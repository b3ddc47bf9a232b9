"""What is kept of the lab: experiments and what came out of them, until retention deletes them."""

from django.conf import settings as configured
from django.db import models
from django.utils import timezone


class Experiment(models.Model):
    """A scenario with its laws, settings and seed: the same once more gives the same.

    trace: null, or {"name", "column", "rows", "path"}; its numbers are copied into the experiment's folder,
    so that nothing has to be kept for its sake. path: of its file, in the data folder; older ones have none.
    queues: whose values its trace has, so that it is shown to nobody who is limited to others; [] without a
    trace, null where the queues aren't known.
    """

    owner = models.ForeignKey(
        configured.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+"
    )
    scenario = models.CharField(max_length=60)
    title = models.CharField(max_length=120, default="", blank=True)
    laws = models.JSONField()
    settings = models.JSONField(default=dict)
    seed = models.PositiveBigIntegerField(default=1)
    trace = models.JSONField(null=True, default=None)
    queues = models.JSONField(null=True, default=list)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    run = models.OneToOneField(
        "workers.Run", on_delete=models.SET_NULL, null=True, default=None, related_name="experiment"
    )

    def __str__(self) -> str:
        return f"experiment {self.pk}: {self.scenario}"


class ExperimentResult(models.Model):
    """What one law did: {metric: number or null}; its series lie beside the trace, by the law's name."""

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="results")
    law = models.CharField(max_length=60)
    metrics = models.JSONField(default=dict)
    seconds = models.FloatField(help_text="how long the simulation took")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["experiment", "law"], name="a_law_once_an_experiment")]

    def __str__(self) -> str:
        return f"{self.law} of experiment {self.experiment_id}"
