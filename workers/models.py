"""What is kept of control: loops, their ledger, and the overrides people put in."""

from django.conf import settings
from django.db import models
from django.utils import timezone


class Loop(models.Model):
    """A law bound to a target (the container, queue or node it steers), a cadence, a guard and a mode."""

    class Mode(models.TextChoices):
        AUTO = "auto"
        ADVISE = "advise"
        HOLD = "hold"
        MANUAL = "manual"

    name = models.CharField(max_length=120, unique=True)  # e.g. worker_rate/alert/n1
    law = models.CharField(max_length=60)
    target = models.JSONField(default=dict)  # {"queue": "alert", "node": "n1"}
    mode = models.CharField(max_length=10, choices=Mode.choices, default=Mode.AUTO)
    parameters = models.JSONField(default=dict)
    guard = models.JSONField(default=dict)
    state = models.JSONField(null=True, default=None)
    interval_seconds = models.FloatField(default=5.0)
    # Fencing: the lease number of the tick that wrote the state; a paused and revived tick writes nothing.
    fence = models.PositiveBigIntegerField(default=0)
    ticked_at = models.DateTimeField(null=True, default=None)

    def __str__(self) -> str:
        return self.name


class LedgerEntry(models.Model):
    """One tick of one loop, also when nothing was done."""

    class Verdict(models.TextChoices):
        CHECKING = "checking"
        EFFECTIVE = "effective"
        INEFFECTIVE = "ineffective"
        HARMFUL = "harmful"
        NO_ACTION = "no action"

    loop = models.ForeignKey(Loop, on_delete=models.CASCADE, related_name="entries")
    at = models.DateTimeField(default=timezone.now, db_index=True)
    mode = models.CharField(max_length=10)
    parameters = models.JSONField()
    state_before = models.JSONField(null=True)
    observation = models.JSONField(null=True)
    action = models.JSONField(null=True)
    raw = models.FloatField(null=True)
    guarded = models.FloatField(null=True)
    reason = models.TextField()
    terms = models.JSONField(default=dict)
    limited_by = models.CharField(max_length=200, null=True)
    expected = models.JSONField(null=True)
    outcome = models.JSONField(null=True)
    applied = models.BooleanField(default=False)
    error = models.TextField(default="", blank=True)
    verdict = models.CharField(max_length=12, choices=Verdict.choices, default=Verdict.NO_ACTION)

    class Meta:
        indexes = [models.Index(fields=["loop", "-at"]), models.Index(fields=["verdict", "at"])]

    def __str__(self) -> str:
        return f"{self.loop_id} {self.at:%H:%M:%S} {self.verdict}"


class Override(models.Model):
    """A person's value in place of a threshold, setpoint, parameter, actuator or mode. Every one expires."""

    loop = models.ForeignKey(Loop, on_delete=models.CASCADE, null=True, related_name="overrides")
    node = models.ForeignKey("queues.Node", on_delete=models.CASCADE, null=True, related_name="overrides")
    name = models.CharField(max_length=60)  # upper_limit, mode, busy_threshold, start …
    value = models.JSONField()
    instead_of = models.JSONField(null=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    reason = models.TextField()
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True)
    ended_at = models.DateTimeField(null=True, default=None)
    ended_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+"
    )

    def __str__(self) -> str:
        return f"{self.name} = {self.value} until {self.expires_at:%H:%M:%S}"
