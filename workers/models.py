"""Database models: loops, their ledger, people's overrides, plans, and batch tasks."""

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models
from django.utils import timezone

# Django finds an application's models through this module.
import workers.alerts.lifecycle.models
import workers.lab.models
import workers.objectives.models
import workers.plants.models
import workers.retries.models
import workers.task_history.models
import workers.windows.models  # noqa: F401
from workers.coordination.packed_json import PackedJSONField

if TYPE_CHECKING:
    from workers.windows.occurrences import WindowOccurrence


class Loop(models.Model):
    """A law bound to a target, an interval, a guard, and a mode.

    The target is the container, queue, or node that it controls.
    """

    class Mode(models.TextChoices):
        AUTO = "auto"
        ADVISE = "advise"
        HOLD = "hold"
        MANUAL = "manual"

    ACTING = (Mode.AUTO, Mode.MANUAL)  # decisions of its law or of a person are applied
    HANDED_OVER = (Mode.HOLD, Mode.MANUAL)  # the law does not decide: a person does, or no one

    name = models.CharField(max_length=120, unique=True)  # e.g. worker_rate/alert/n1
    law = models.CharField(max_length=60)
    target = models.JSONField(default=dict)  # {"queue": "alert", "node": "n1"}
    mode = models.CharField(max_length=10, choices=Mode.choices, default=Mode.AUTO)
    parameters = models.JSONField(default=dict)
    guard = models.JSONField(default=dict)
    state = models.JSONField(null=True, default=None)
    interval_seconds = models.FloatField(default=5.0)
    # Fencing: the lease number of the tick that wrote the state; a tick that was paused and resumed writes nothing.
    fence = models.PositiveBigIntegerField(default=0)
    ticked_at = models.DateTimeField(null=True, default=None)
    # `at` of its last entry: earlier than its last tick while it is at rest, and after ticks without an entry.
    decided_at = models.DateTimeField(null=True, default=None)
    at_rest = models.BooleanField(default=False)

    def __str__(self) -> str:
        return self.name

    def request_decision(self) -> None:
        """Make the next decision due at once, and waive a cool-down once."""
        self.ticked_at, self.at_rest = None, False
        if self.state:
            self.state = {**self.state, "guard": {**(self.state.get("guard") or {}), "acted_at_seconds": None}}


class ActionFlag(models.BooleanField):  # type: ignore[type-arg] # a field takes no types as it runs
    """A flag that says whether there is an action, stored with every row so that filters find it in their index.

    It is no generated column, since SQLite does not use an index as covering with one.
    """

    def pre_save(self, model_instance: Any, add: bool) -> bool:
        return model_instance.action is not None


class LedgerEntry(models.Model):
    """One tick of one loop, even when nothing was done."""

    class Verdict(models.TextChoices):
        CHECKING = "checking"
        EFFECTIVE = "effective"
        INEFFECTIVE = "ineffective"
        HARMFUL = "harmful"
        NO_ACTION = "no action"

    loop = models.ForeignKey(Loop, on_delete=models.CASCADE, related_name="entries")
    at = models.DateTimeField(default=timezone.now, db_index=True)
    # The number of the lease it was written under: it only increases over a loop's entries, so no two managers wrote.
    fence = models.PositiveBigIntegerField(default=0)
    mode = models.CharField(max_length=10)
    parameters = PackedJSONField()
    state_before = PackedJSONField(null=True)
    observation = PackedJSONField(null=True)
    # Any: code that applies or judges an action has selected an entry with one.
    action: "models.JSONField[Any, Any]" = models.JSONField(null=True)
    raw = models.FloatField(null=True)
    guarded = models.FloatField(null=True)
    reason = models.TextField()
    terms = PackedJSONField(default=dict)
    limited_by = models.CharField(max_length=200, null=True)
    expected = PackedJSONField(null=True)
    outcome = PackedJSONField(null=True)
    applied = models.BooleanField(default=False)
    error = models.TextField(default="", blank=True)
    verdict = models.CharField(max_length=12, choices=Verdict.choices, default=Verdict.NO_ACTION)
    # When the effect of the action can be judged; null: there is no effect to judge, or it has been judged.
    judge_at = models.DateTimeField(null=True, default=None)
    acted = ActionFlag(default=False, editable=False)
    # The version of the deciding code (controllers.framework.code), which may explain a different replay.
    code = models.CharField(max_length=12, default="", blank=True)
    # The earlier idle ticks that it represents (`workers.control.ledger.folds`): how many, since when, and
    # their content.
    folded_ticks = models.PositiveIntegerField(default=0)
    folded_since = models.DateTimeField(null=True, default=None)
    folded = models.BinaryField(null=True, default=None)

    class Meta:
        indexes = [
            models.Index(fields=["loop", "-at"]),
            # With the loop, so that the timeline counts actions without reading the wide rows.
            models.Index(fields=["verdict", "at", "loop"], name="ledger_acts"),
            # Each tick reads the few entries that are due, instead of all that wait for their verdict.
            models.Index(fields=["judge_at"], condition=models.Q(judge_at__isnull=False), name="ledger_unjudged"),
            # All filter columns beside the id: a rare match is found without reading the wide rows.
            models.Index(
                fields=[
                    *("-id", "loop", "verdict", "mode", "limited_by", "acted", "at"),
                    *("folded_ticks", "folded_since"),
                ],
                name="ledger_filters",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.loop_id} {self.at:%H:%M:%S} {self.verdict}"


class Override(models.Model):
    """A person's value in place of a threshold, setpoint, parameter, actuator, or mode.

    It applies to one loop, or to all loops of a law, a queue, a node, or any combination of these. A node with the name
    of a threshold: the node itself; a queue with the paused part; a worker host that is drained.
    `workers.steering.scope` says which.
    """

    loop = models.ForeignKey(Loop, on_delete=models.CASCADE, null=True, related_name="overrides")
    law = models.CharField(max_length=60, default="", blank=True)
    queue = models.CharField(max_length=40, default="", blank=True)
    node = models.ForeignKey("queues.Node", on_delete=models.CASCADE, null=True, related_name="overrides")
    host = models.CharField(max_length=100, default="", blank=True)  # a worker host, drained
    name = models.CharField(max_length=60)  # upper_limit, mode, busy_threshold, start …
    value = models.JSONField()
    instead_of = models.JSONField(null=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    reason = models.TextField()
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True, null=True)  # null: until an administrator ends it
    replaces = models.JSONField(default=list)  # overrides with lower precedence: {"id", "scope", "value", "owner"}
    ended_at = models.DateTimeField(null=True, default=None)
    ended_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")

    # The occurrence of a planned window that sets modes of loops. Such an override is computed, and never stored.
    occurrence: "WindowOccurrence | None" = None

    def __str__(self) -> str:
        until = f"until {self.expires_at:%H:%M:%S}" if self.expires_at else "without expiry"
        return f"{self.name} = {self.value} {until}"


class FirstReport(models.Model):
    """The savings that a loop in *advise* mode at an attached plant would have made in its first hour.

    See `workers.control.loops`. figures: as `FirstReportFigures`; null: too little was measured, and the next
    hour is reported instead. An empty time range (`since` is `until`) marks a new plant since then.
    """

    loop = models.OneToOneField(Loop, on_delete=models.CASCADE, related_name="first_report")
    since = models.DateTimeField()
    until = models.DateTimeField()
    figures = models.JSONField(null=True)

    def __str__(self) -> str:
        return f"first report of {self.loop_id}"


class ModeProposal(models.Model):
    """The proposal to set a loop that advises to auto, and the last evaluation of its advice.

    See `workers.control.advice`. until: the end of the evaluated day; figures: an `AdviceEffect`, null if too little of
    the day was measured.
    """

    class State(models.TextChoices):
        OBSERVING = "observing"
        PROPOSED = "proposed"
        APPROVED = "approved"
        REJECTED = "rejected"

    loop = models.OneToOneField(Loop, on_delete=models.CASCADE, related_name="mode_proposal")
    state = models.CharField(max_length=10, choices=State.choices, default=State.OBSERVING)
    until = models.DateTimeField(db_index=True)
    figures = models.JSONField(null=True, default=None)
    hash = models.CharField(max_length=64, default="", blank=True)
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    decided_at = models.DateTimeField(null=True, default=None)

    def __str__(self) -> str:
        return f"{self.state} mode of {self.loop_id}"


class Setting(models.Model):
    """A setting of the plant that differs from its default (see workers.steering.plant_settings)."""

    name = models.CharField(max_length=60, unique=True)
    value = models.JSONField()
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    changed_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


class Plan(models.Model):
    """Moves of points proposed together, approved by their hash, and executed as approved.

    Shapes: moves [{queue, from, to, points}]; base {queue: {node: points}}; before and after {node: {"utilisation":
    share or null, "state", "points"}}; progress, one per move: {"state": pending | moved | transferring | done,
    "points_moved", "blocks", "blocks_total", "events", "bytes"}.
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
    # The node that is to be empty at the end (drain, release).
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
    # The approvals in order: {"by", "reason", "at"}; the required number is a setting of each role.
    approvals = models.JSONField(default=list)
    started_at = models.DateTimeField(null=True, default=None)
    ended_at = models.DateTimeField(null=True, default=None)
    progress = models.JSONField(default=list)
    note = models.TextField(default="", blank=True)  # what it waits for, or why it ended so
    # Fencing: the lease number of the tick that advanced it last.
    fence = models.PositiveBigIntegerField(default=0)
    advanced_at = models.DateTimeField(null=True, default=None)
    bytes_per_second = models.PositiveBigIntegerField(default=16 * 2**20, help_text="maximum for transfers")

    class Meta:
        indexes = [models.Index(fields=["state", "created_at"])]

    def __str__(self) -> str:
        return f"{self.kind} {self.hash[:8]} {self.state}"


class Task(models.Model):
    """A batch task: its job, parameters, schedule, and requirements."""

    name = models.CharField(max_length=60, unique=True)
    job = models.CharField(max_length=200)  # a name in workers.batch.catalog, or python:dotted.path
    parameters = models.JSONField(default=dict)
    requirements = models.JSONField(default=list)  # of "spark", "memory": they select the worker role
    single_instance = models.BooleanField(default=True, help_text="at most one run and one worker at a time")
    parallel = models.PositiveSmallIntegerField(default=1, help_text="maximum number of workers at a time")
    deadline = models.TimeField(null=True, default=None, help_text="time by which a run has to end (UTC)")
    enabled = models.BooleanField(default=True)
    is_paused = models.BooleanField(default=False, db_default=False)  # with the schedules of all tasks
    # The schedule: interval or crontab, read by beat. Null: only on request.
    periodic = models.OneToOneField(
        "django_celery_beat.PeriodicTask", on_delete=models.SET_NULL, null=True, related_name="batch_task"
    )

    def __str__(self) -> str:
        return self.name


class Run(models.Model):
    """One run of a task.

    progress: {"rows", "share" (0..1, null: unknown), "stages": {"done", "total"}, "chunk", "skipped": [{"file",
    "why"}]}.
    """

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"
        CANCELLED = "cancelled"

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="runs")
    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED, db_index=True)
    parameters = models.JSONField(default=dict)
    single_instance = models.BooleanField()  # as the task was when the run started: the constraint uses it
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+"
    )  # null: the schedule
    deadline_at = models.DateTimeField(null=True, default=None)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    started_at = models.DateTimeField(null=True, default=None)
    ended_at = models.DateTimeField(null=True, default=None)
    progress = models.JSONField(default=dict)
    chunks_total = models.PositiveIntegerField(null=True, default=None)  # null: unknown in advance
    chunks_done = models.PositiveIntegerField(default=0)
    workers_wanted = models.PositiveSmallIntegerField(default=0)
    error = models.TextField(default="", blank=True)
    # Fencing: the greatest number that a claim of one of its chunks was given.
    fence = models.PositiveBigIntegerField(default=0)

    class Meta:
        indexes = [models.Index(fields=["task", "-created_at"])]
        constraints = [
            models.UniqueConstraint(
                fields=["task"],
                condition=models.Q(single_instance=True, state__in=("queued", "running")),
                name="one_open_run_of_a_single_instance_task",
            )
        ]

    def __str__(self) -> str:
        return f"run {self.pk} {self.state}"

    @property
    def is_requested(self) -> bool:
        """Return whether a person requested it. Scheduled and command-line runs have no owner."""
        return self.owner_id is not None


class Chunk(models.Model):
    """A part of a run's work that is done completely or not at all: a partition, a range of identifiers."""

    class State(models.TextChoices):
        PENDING = "pending"
        WORKING = "working"
        DONE = "done"
        FAILED = "failed"

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="chunks")
    identifier = models.CharField(max_length=200)
    place = models.PositiveIntegerField()
    content = models.JSONField(default=dict)
    state = models.CharField(max_length=8, choices=State.choices, default=State.PENDING)
    # Fencing: a writer of this chunk presents this number, and an older one is rejected.
    fence = models.PositiveBigIntegerField(default=0)
    worker = models.CharField(max_length=40, default="", blank=True)
    beat_at = models.DateTimeField(null=True, default=None)
    tries = models.PositiveSmallIntegerField(default=0)
    rows = models.PositiveBigIntegerField(default=0)
    seconds = models.FloatField(null=True, default=None)
    # Total worker time, including every try; and how often it was given back for a scheduled run.
    spent_seconds = models.FloatField(default=0.0)
    yields = models.PositiveSmallIntegerField(default=0)
    skipped = models.JSONField(default=list)
    error = models.TextField(default="", blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "identifier"], name="a_chunk_once_a_run")]
        indexes = [models.Index(fields=["run", "state", "place"])]

    def __str__(self) -> str:
        return f"{self.identifier} {self.state}"


class Keep(models.Model):
    """A time range that retention keeps, since an incident refers to it."""

    since = models.DateTimeField()
    until = models.DateTimeField()
    queue = models.CharField(max_length=40, default="", blank=True)  # "": events of every queue
    reason = models.TextField()
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(until__gte=models.F("since")), name="a_keep_ends_after_it_begins")
        ]

    def __str__(self) -> str:
        return f"{self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M}: {self.reason}"


class PipelineVersion(models.Model):
    """A version of a declared pipeline application: its immutable text, its author, and the reason."""

    application = models.CharField(max_length=40)
    number = models.PositiveIntegerField()
    text = models.TextField()
    reason = models.TextField()
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    # The requested version; the control server receives it (`workers.pipeline.declaration.declared`).
    active = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["application", "number"], name="one_version_of_a_number"),
            models.UniqueConstraint(fields=["application"], condition=models.Q(active=True), name="one_active_version"),
        ]

    def __str__(self) -> str:
        return f"{self.application} {self.number}"
