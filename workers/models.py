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


class Plan(models.Model):
    """Moves of points proposed together, with before and after; approved by their hash, executed as approved.

    Shapes: moves [{queue, from, to, points}]; base {queue: {node: points}}; before and after {node:
    {"utilisation": share or null, "state", "points"}}; progress, one per move: {"state": pending | moved |
    transferring | done, "points_moved", "blocks", "blocks_total", "events", "bytes"}.
    """

    class Kind(models.TextChoices):
        REBALANCE = "rebalance"
        BAND = "band"
        DRAIN = "drain"
        RELEASE = "release"
        USE = "use"
        RESTORE = "restore"
        HAND = "hand"
        ROLL_BACK = "roll-back"

    class State(models.TextChoices):
        PROPOSED = "proposed"
        APPROVED = "approved"
        RUNNING = "running"
        DONE = "done"
        STOPPED = "stopped"
        FAILED = "failed"
        REJECTED = "rejected"
        VOID = "void"
        ROLLED_BACK = "rolled-back"

    kind = models.CharField(max_length=12, choices=Kind.choices)
    state = models.CharField(max_length=12, choices=State.choices, default=State.PROPOSED, db_index=True)
    title = models.CharField(max_length=200)
    reason = models.TextField()
    moves = models.JSONField()
    base = models.JSONField()
    base_revision = models.PositiveBigIntegerField()
    hash = models.CharField(max_length=64, db_index=True)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)
    estimated_seconds = models.FloatField(null=True)
    estimated_bytes = models.BigIntegerField(default=0)
    # The node that is to hold nothing at the end (drain, release).
    empties = models.CharField(max_length=40, default="", blank=True)
    law = models.CharField(max_length=60, default="", blank=True)
    # One plan per decision: a tick that is repeated after a crash finds the one it made.
    entry = models.OneToOneField(LedgerEntry, on_delete=models.SET_NULL, null=True, related_name="plan")
    undoes = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="undone_by")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+"
    )  # null: a loop
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    expires_at = models.DateTimeField()
    # Who has approved, in order: {"by", "reason", "at"}; one is enough, a rule of two would count them.
    approvals = models.JSONField(default=list)
    started_at = models.DateTimeField(null=True, default=None)
    ended_at = models.DateTimeField(null=True, default=None)
    progress = models.JSONField(default=list)
    note = models.TextField(default="", blank=True)  # what it waits for, or why it ended so
    # Fencing: the lease number of the tick that advanced it last.
    fence = models.PositiveBigIntegerField(default=0)
    advanced_at = models.DateTimeField(null=True, default=None)
    bytes_per_second = models.PositiveBigIntegerField(default=16 * 2**20, help_text="of transfers, at most")

    class Meta:
        indexes = [models.Index(fields=["state", "created_at"])]

    def __str__(self) -> str:
        return f"{self.kind} {self.hash[:8]} {self.state}"
