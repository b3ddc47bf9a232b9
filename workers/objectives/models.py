"""Stored records of service levels: objectives as people define them, and the counts of each minute."""

from django.conf import settings
from django.db import models
from django.utils import timezone


class Objective(models.Model):
    """A promise about a queue, an application, each of either, or the plant.

    Either `condition` says when a second is good (and `of` what it counts for; "" for a second), or `lost` says how
    much of `of` is bad, per second. All are expressions over the figures of the subject, read and checked by
    `workers.objectives.definitions`.
    """

    class Kind(models.TextChoices):
        PLANT = "plant"
        QUEUE = "queue"
        APPLICATION = "application"

    class PaysFor(models.TextChoices):
        NOTHING = "", "nothing"
        THROTTLING = "throttle", "throttling"
        SHEDDING = "shed", "shed events"

    name = models.CharField(max_length=60, unique=True)
    kind = models.CharField(max_length=12, choices=Kind.choices, default=Kind.PLANT)
    subject = models.CharField(max_length=80, default="", blank=True)  # "": the plant, or each of its kind
    condition = models.CharField(max_length=2_000, default="", blank=True)
    lost = models.CharField(max_length=2_000, default="", blank=True)
    of = models.CharField(max_length=2_000, default="", blank=True)
    target = models.FloatField()  # the promised share
    window_days = models.PositiveSmallIntegerField(default=30)
    pays_for = models.CharField(max_length=8, choices=PaysFor.choices, default="", blank=True)
    revision = models.PositiveIntegerField(default=1)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    changed_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.name


class ObjectiveMinute(models.Model):
    """The counts of a minute (since 1970). `burnt`: of an objective about several, {subject: bad}."""

    objective = models.ForeignKey(Objective, on_delete=models.CASCADE, related_name="minutes")
    minute = models.PositiveBigIntegerField()
    bad = models.FloatField()
    total = models.FloatField()
    burnt = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["objective", "minute"], name="one_count_a_minute")]

    def __str__(self) -> str:
        return f"{self.objective_id} {self.minute}: {self.bad:g} of {self.total:g}"
