"""The table of retry plans."""

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone


class RetryPlan(models.Model):
    """Tasks of one plant that are sent again, as selected, counted, and approved by hash.

    query: the search that selected them. calls: what the tasks call, "" for the plant itself
    (`workers.retries.budget`). items: `workers.retries.items`. skipped: reason → tasks that are not retried; queues:
    destination → tasks. staging: the name of the list or queue that holds the messages not sent yet; its tasks have
    been sent in the order of the items. open_tasks: [[position, sent at]] of sent tasks whose end was not heard.
    succeeded, failed, unheard: sent tasks by their outcome. pace: a `workers.retries.pacing.RetryPace`.
    """

    class Kind(models.TextChoices):
        TASKS = "tasks"
        DEAD_LETTERS = "dead-letters"

    class State(models.TextChoices):
        PROPOSED = "proposed"
        APPROVED = "approved"
        STAGING = "staging"
        SENDING = "sending"
        PAUSED = "paused"
        ENDING = "ending"
        DONE = "done"
        ENDED = "ended"
        REJECTED = "rejected"
        EXPIRED = "expired"

    kind = models.CharField(max_length=12, choices=Kind.choices, default=Kind.TASKS)
    state = models.CharField(max_length=12, choices=State.choices, default=State.PROPOSED, db_index=True)
    plant = models.CharField(max_length=40, db_index=True)
    query = models.TextField()
    reason = models.TextField()
    items = models.BinaryField()
    total = models.PositiveIntegerField()
    skipped: "models.JSONField[Any, Any]" = models.JSONField(default=dict)
    queues: "models.JSONField[Any, Any]" = models.JSONField(default=dict)
    min_rate = models.FloatField()
    max_rate = models.FloatField()
    calls = models.CharField(max_length=120, default="", db_default="", blank=True)
    hash = models.CharField(max_length=64)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    # As in `workers.models.Plan`.
    approvals: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, default=None)
    ended_at = models.DateTimeField(null=True, default=None)
    note = models.TextField(default="", blank=True)  # what it waits for, or why it stopped
    staging = models.CharField(max_length=120, default="", blank=True)
    sent = models.PositiveIntegerField(default=0)
    succeeded = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    unheard = models.PositiveIntegerField(default=0)
    open_tasks: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    pace: "models.JSONField[Any, Any]" = models.JSONField(default=dict)
    # Fencing: the lease number of the process that advances it.
    fence = models.PositiveBigIntegerField(default=0)

    class Meta:
        indexes = [models.Index(fields=["plant", "state"])]

    def __str__(self) -> str:
        return f"retry plan {self.pk} of {self.plant}"
