"""Stored planned windows, the alerts that they silenced, and the overrides of freezes."""

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone


class PlannedWindow(models.Model):
    """A planned window: maintenance, a change freeze, or a recurring silence; once or recurring.

    `local_start`: the first start as local time in `time_zone`, such as 2026-03-22T02:00:00. `rule`: an RRULE, "" for a
    window that occurs once. `exceptions`: local start of an occurrence → its end as text, null for a canceled one.
    `scope`: subjects (`workers.windows.scope`). `expected`: matchers that alerts must also match to be silenced.

    A change of a window replaces its values from `changed_at` on. A former version keeps the earlier ones: it is
    another row, which ended at that time, and whose `successor` is the window.
    """

    class Kind(models.TextChoices):
        MAINTENANCE = "maintenance"
        FREEZE = "freeze", "Change freeze"
        SILENCE = "silence", "Recurring silence"

    class LoopMode(models.TextChoices):
        UNCHANGED = "unchanged"
        ADVISE = "advise"
        HOLD = "hold"

    name = models.CharField(max_length=80)
    kind = models.CharField(max_length=12, choices=Kind.choices)
    scope: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    expected: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    loop_mode = models.CharField(max_length=10, choices=LoopMode.choices, default=LoopMode.UNCHANGED)
    local_start = models.CharField(max_length=19)
    time_zone = models.CharField(max_length=64)
    duration_minutes = models.PositiveIntegerField()
    rule = models.CharField(max_length=200, default="", blank=True)
    exceptions: "models.JSONField[Any, Any]" = models.JSONField(default=dict)
    # The end of its last occurrence; null: it recurs without an end.
    last_end = models.DateTimeField(null=True, default=None, db_index=True)
    event_uid = models.CharField(max_length=255, default="", blank=True)  # of the calendar event it was imported from
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    reason = models.TextField()
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, default=None)
    ended_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    version = models.PositiveIntegerField(default=1, db_default=1)
    changed_at = models.DateTimeField(null=True, default=None)  # null: never changed
    successor = models.ForeignKey("self", on_delete=models.CASCADE, null=True, related_name="former_versions")

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def valid_since(self) -> datetime:
        """Return when its present values came into force."""
        return self.changed_at or self.created_at

    @property
    def duration(self) -> timedelta:
        return timedelta(minutes=self.duration_minutes)


class ExpectedAlert(models.Model):
    """An alert that an occurrence of a window silenced."""

    window = models.ForeignKey(PlannedWindow, on_delete=models.CASCADE, related_name="silenced")
    alert = models.ForeignKey("workers.Alert", on_delete=models.CASCADE, related_name="+")
    local_start = models.CharField(max_length=19)  # of the occurrence
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    at = models.DateTimeField()  # when the alert was silenced first

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["window", "alert", "local_start"], name="one_expected_alert_an_occurrence")
        ]

    def __str__(self) -> str:
        return f"alert {self.alert_id} in window {self.window_id}"


class FreezeOverride(models.Model):
    """A person's permission to make changes during a freeze, with the reason, until it expires."""

    window = models.ForeignKey(PlannedWindow, on_delete=models.CASCADE, related_name="overrides")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    reason = models.TextField()
    at = models.DateTimeField()
    until = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"override of freeze {self.window_id} until {self.until:%H:%M:%S}"
