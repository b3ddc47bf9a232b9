"""Attached plants that an administrator has added."""

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone


class RegisteredPlant(models.Model):
    """The address of a plant and the options of its adapter.

    A token is never stored: `secret_environment` names the variable that contains it.

    kind, and options (its further settings): as `workers.plants.foreign.adapters` finds and checks them.
    """

    name = models.CharField(max_length=40, unique=True)
    kind = models.CharField(max_length=20)
    url = models.CharField(max_length=500, blank=True)
    options = models.JSONField(default=dict)
    secret_environment = models.CharField(max_length=80, default="", blank=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.name

    @property
    def place(self) -> tuple[object, ...]:
        """Return which plant it is: with another address or other parts it is another plant."""
        return self.kind, self.url, self.options


class PlantOrder(models.Model):
    """The tasks of an operator that Weir last set, at `at`, by a loop or a person: one row each."""

    plant = models.ForeignKey(RegisteredPlant, on_delete=models.CASCADE, related_name="orders")
    operator = models.CharField(max_length=200)
    tasks = models.PositiveIntegerField()
    at = models.DateTimeField()
    by = models.CharField(max_length=200)
    by_loop = models.BooleanField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["plant", "operator"], name="one_order_an_operator")]

    def __str__(self) -> str:
        return f"{self.plant.name} {self.operator}: {self.tasks}"


class OffsetResetPlan(models.Model):
    """A reset of the offsets of a Kafka consumer group, as planned and approved by hash.

    target: what was requested, such as a time. partitions: the rows of an
    `workers.plants.foreign.kafka.offset_reset.OffsetReset`. skipped, again: events that the group would not read, and
    that it would read a second time. approvals: as in `workers.models.Plan`. note: what it waits for, or how it ended.
    """

    class State(models.TextChoices):
        PROPOSED = "proposed"
        APPROVED = "approved"
        DONE = "done"
        FAILED = "failed"
        REJECTED = "rejected"
        EXPIRED = "expired"

    state = models.CharField(max_length=12, choices=State.choices, default=State.PROPOSED, db_index=True)
    plant = models.CharField(max_length=40, db_index=True)
    group = models.CharField(max_length=255)
    target = models.TextField()
    partitions: "models.JSONField[Any, Any]" = models.JSONField()
    skipped = models.PositiveBigIntegerField()
    again = models.PositiveBigIntegerField()
    hash = models.CharField(max_length=64)
    reason = models.TextField()
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    approvals: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, default=None)
    note = models.TextField(default="", blank=True)

    def __str__(self) -> str:
        return f"offset reset {self.pk} of {self.plant}"
