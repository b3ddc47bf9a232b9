"""The configuration of queues and nodes: the source of truth, of which `weir:topology` is the projection."""

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models

from common import checks
from queues.durability import MEMORY
from queues.durability import NAMES as DURABILITY_NAMES

NAME = RegexValidator(
    checks.QUEUE_NAME.pattern,
    "name must be a lowercase letter followed by up to 39 lowercase letters, digits, -, or _.",
)


class Node(models.Model):
    """A Redis-protocol server and its agent. Thresholds are shares of capacity."""

    name = models.CharField(max_length=40, unique=True, validators=[NAME])
    url = models.CharField(max_length=300)
    capacity_events_per_second = models.FloatField(default=50_000.0, validators=[MinValueValidator(1.0)])
    capacity_memory_bytes = models.BigIntegerField(default=512 * 2**20, validators=[MinValueValidator(1)])
    busy_threshold = models.FloatField(default=0.70)
    toobusy_threshold = models.FloatField(default=0.90)
    drained = models.BooleanField(default=False, help_text="moves all its points away, receives none")
    cordoned = models.BooleanField(default=False, help_text="keeps its points, receives no new points")
    replica_url = models.CharField(
        max_length=300, blank=True, default="", help_text="the server that copies it, or empty"
    )
    # How often the server and its replica have changed places: the replica is the primary if it is odd.
    promotions = models.PositiveIntegerField(default=0)
    promoted_at = models.DateTimeField(null=True, default=None)
    # Since when no heartbeat arrives, written by recovery. A process that takes over continues the count.
    offline_since = models.DateTimeField(null=True, default=None)

    def __str__(self) -> str:
        return self.name

    def get_primary_url(self) -> str:
        """Return the URL of the server that is the primary now."""
        return self.replica_url if self.replica_url and self.promotions % 2 else self.url

    def get_replica_url(self) -> str:
        """Return the URL of the server that is the replica now; "" without one."""
        return self.url if self.replica_url and self.promotions % 2 else self.replica_url


class Queue(models.Model):
    """A named stream of events of one kind, distributed over containers by 1000 points."""

    class Kind(models.TextChoices):
        JOBS = "jobs"
        PIPELINE = "pipeline"

    name = models.CharField(max_length=40, unique=True, validators=[NAME])
    kind = models.CharField(max_length=10, choices=Kind.choices)
    minimum_containers = models.PositiveSmallIntegerField(default=2)
    priority = models.PositiveSmallIntegerField(
        default=5, validators=[MaxValueValidator(9)], help_text="0 is served first"
    )
    handler = models.CharField(
        max_length=200,
        default="emulate",
        help_text="`webhook`, `sql`, `parquet`, `emulate`, or `python:dotted.path` (jobs queues)",
    )
    handler_options = models.JSONField(default=dict, blank=True)
    events_per_worker = models.PositiveIntegerField(default=5_000, validators=[MinValueValidator(1)])
    tries = models.PositiveSmallIntegerField(default=5, validators=[MinValueValidator(1)])
    handler_timeout_seconds = models.FloatField(default=30.0)
    requirements = models.JSONField(default=list, blank=True, help_text="capabilities of worker hosts (jobs queues)")
    durability = models.CharField(
        max_length=10,
        default=MEMORY,
        choices=[(name, name) for name in DURABILITY_NAMES],
        help_text="where events are stored when a publish is acknowledged",
    )

    def __str__(self) -> str:
        return self.name


class Container(models.Model):
    """A queue's segment on one node, and its points.

    With 0 points it is *draining*: it gets nothing new, and stays until its events have been consumed.
    """

    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="containers")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="containers")
    points = models.PositiveSmallIntegerField(validators=[MaxValueValidator(1000)])
    draining_since = models.DateTimeField(null=True, default=None)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["queue", "node"], name="one_container_per_queue_and_node")]

    def __str__(self) -> str:
        return f"{self.queue}@{self.node}"


class TopologyRevision(models.Model):
    """One row that counts every change of nodes, queues, and points.

    The count shows the age of a projection.
    """

    number = models.PositiveBigIntegerField(default=0)
    # Fencing: the lease number of the recovery that wrote last; a recovery that was paused writes nothing.
    recovery_fence = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return str(self.number)
