"""Tables of the task history. Times are seconds since 1970, by Weir's clock."""

from django.db import models


class RecentTask(models.Model):
    """A task that is not in a block yet: it is unfinished, or finished recently.

    at: when Weir last heard of it; record: a `TaskRecord` as JSON.
    """

    plant = models.CharField(max_length=40)
    task_id = models.CharField(max_length=255)
    at = models.FloatField()
    finished = models.BooleanField()
    record = models.BinaryField()

    class Meta:
        indexes = [models.Index(fields=["plant", "at"])]
        constraints = [models.UniqueConstraint(fields=["plant", "task_id"], name="one_recent_task_an_id")]

    def __str__(self) -> str:
        return f"{self.plant} {self.task_id}"


class TaskBlock(models.Model):
    """Some thousand tasks of one plant and day (UTC) as columns, and the filter of their terms.

    superseded: the numbers of rows whose tasks continued later (16 bits each). A block of the database has `filter` and
    `data`. An archived block has its file, its row group there, and the position of its filter instead.
    """

    plant = models.CharField(max_length=40)
    day = models.CharField(max_length=10)
    first = models.FloatField()
    last = models.FloatField()
    rows = models.PositiveIntegerField()
    lines = models.PositiveIntegerField()  # of 64 bytes in the filter
    superseded = models.BinaryField(default=b"")
    file = models.CharField(max_length=200, default="", blank=True)
    row_group = models.PositiveIntegerField(null=True, default=None)
    filter_at = models.PositiveBigIntegerField(null=True, default=None)
    filter = models.BinaryField(null=True, default=None)
    # Last: SQLite reads the columns of a row in their order.
    data = models.BinaryField(null=True, default=None)

    class Meta:
        indexes = [models.Index(fields=["plant", "-last"]), models.Index(fields=["day", "plant"])]

    def __str__(self) -> str:
        return f"{self.plant} {self.day}: {self.rows} tasks"


class TaskGap(models.Model):
    """A time range in which events of a plant, or of one of its workers, may be missing."""

    plant = models.CharField(max_length=40)
    worker = models.CharField(max_length=255, default="", blank=True)
    since = models.FloatField()
    until = models.FloatField()
    reason = models.CharField(max_length=200)

    class Meta:
        indexes = [models.Index(fields=["plant", "until"])]

    def __str__(self) -> str:
        return f"{self.plant} {self.since:.0f} to {self.until:.0f}: {self.reason}"


class TaskFeed(models.Model):
    """The recording of one plant's tasks: one row each.

    heard_until: all events until then are stored, apart from gaps. fence: of the recorder that wrote last.
    """

    plant = models.CharField(max_length=40, unique=True)
    began_at = models.FloatField()
    heard_until = models.FloatField()
    fence = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.plant} until {self.heard_until:.0f}"


class FailureGroup(models.Model):
    """Failures of one kind of task with the same fingerprint.

    hours: hour since 1970 → failures, of the last week; queues and workers: name → failures.
    """

    plant = models.CharField(max_length=40)
    fingerprint = models.CharField(max_length=16)
    name = models.CharField(max_length=255)
    error = models.CharField(max_length=300)
    first_seen = models.FloatField()
    last_seen = models.FloatField()
    count = models.PositiveBigIntegerField(default=0)
    hours = models.JSONField(default=dict)
    queues = models.JSONField(default=dict)
    workers = models.JSONField(default=dict)
    last_task = models.CharField(max_length=255, default="")

    class Meta:
        indexes = [models.Index(fields=["plant", "last_seen"]), models.Index(fields=["first_seen"])]
        constraints = [models.UniqueConstraint(fields=["plant", "fingerprint"], name="one_group_a_fingerprint")]

    def __str__(self) -> str:
        return f"{self.plant} {self.name}: {self.error}"
