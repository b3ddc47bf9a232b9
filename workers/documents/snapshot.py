"""The plant at one instant (`weir:snapshot`), composed by the observer each second and read by all others."""

from typing import Annotated

from msgspec.structs import force_setattr

from common.stored_document import (
    Events,
    Instant,
    PerSecond,
    Seconds,
    Share,
    StoredDocument,
    decode_document,
    describe,
    describe_metric,
    encode_document,
)
from queues.nodes.node_state import NORMAL
from workers.documents.alerts import AlertStatus
from workers.documents.hosts import HostStatus
from workers.documents.loops import LoopStatus, ManualChange, OverrideStatus, RecentAction
from workers.documents.nodes import NodeState, NodeStatus
from workers.documents.objectives import ObjectiveStatus
from workers.documents.parts import PartStatus, ProcessEvent
from workers.documents.pipeline import PipelineStatus
from workers.documents.plans import PlanStatus
from workers.documents.plants import LoadForecast, PlantHolder, PlantStatus
from workers.documents.queues import DestinationStatus, ProducerStatus, QueueStatus, SlotHolder, Trend
from workers.documents.states import Problem, Severity, SubjectFinding, SubjectState
from workers.documents.windows import PlannedWindowStatus

SILENT_AFTER_SECONDS = 3.0  # from this age on, pages, sockets, and terminals show a snapshot as outdated


class RateChange(StoredDocument, frozen=True, kw_only=True):
    """A lasting change of a rate to another level."""

    at: Instant
    before: Annotated[float, describe("Median before the change, events/s.")]
    after: float


class ExpectedBand(StoredDocument, frozen=True, kw_only=True):
    """The expected range of a rate."""

    low: Annotated[float, describe("Lower bound of this minute's mean, events/s.", recorded=True)]
    high: Annotated[float, describe("Upper bound of this minute's mean, events/s.", recorded=True)]
    days: Annotated[float, describe("Length of the past data, days.")]
    minute: Annotated[float | None, describe("Mean of the newest complete minute, events/s; null: not measured.")] = (
        None
    )
    changes: Annotated[list[RateChange], describe("Sustained rate changes in the last day, oldest first.")] = []


class ExpectedBands(StoredDocument, frozen=True, kw_only=True):
    """Expected ranges of `in_per_second` and `out_per_second`, of all queues together and of each queue."""

    totals: Annotated[dict[str, ExpectedBand], describe("Keyed by rate: in_per_second or out_per_second.")] = {}
    queues: Annotated[dict[str, dict[str, ExpectedBand]], describe("Keyed by queue, then by rate.")] = {}


class RunStatus(StoredDocument, frozen=True, kw_only=True):
    """A run of a batch task."""

    task: str
    state: Annotated[str, describe(values=("queued", "running", "done", "failed", "cancelled"))]
    share: Annotated[Share | None, describe("Its progress, 0 to 1.")] = None
    rows: int = 0
    chunks_done: int = 0
    chunks_total: int | None = None
    stages_done: int = 0
    stages_total: int = 0
    working: Annotated[int, describe("Number of workers at it now.")] = 0
    workers_wanted: Annotated[int, describe("Number of workers that it should have.")] = 0
    started_at: Instant | None = None
    deadline_at: Instant | None = None


class PlantHealth(StoredDocument, frozen=True):
    """The health of the plant."""

    state: Annotated[NodeState, describe("The sign of the worst problem and its color.")]
    sentence: Annotated[str, describe("The worst problem.")]
    detail: Annotated[str, describe("Facts beside the sentence, while there is no problem.")] = ""
    doing: Annotated[str, describe("Current actions of plans, loops, and users.")] = ""
    severity: Severity = "well"
    findings: Annotated[list[SubjectFinding], describe("All problems, worst first.")] = []
    word: Annotated[str, describe("The state in a word, shown before the sentence.")] = ""


class PlantTotals(StoredDocument, frozen=True, kw_only=True):
    """All queues, nodes, and worker hosts of role jobs together."""

    in_per_second: Annotated[PerSecond | None, describe_metric("Events published per second")] = None
    out_per_second: Annotated[PerSecond | None, describe_metric("Events processed per second")] = None
    latency_p95_seconds: Annotated[
        Seconds | None, describe_metric("95th percentile of the time from publish to acknowledgment")
    ] = None
    backlog_events: Annotated[Events | None, describe_metric("Events waiting")] = None
    backlog_change_events: Annotated[Events | None, describe("Change over half a minute.")] = None
    backlog_trend: Annotated[Trend | None, describe("Trend over half a minute.")] = None
    backlog_seconds: Annotated[Seconds | None, describe_metric("Wait of the oldest event of all queues in seconds")] = (
        None
    )
    # Of the events that patterns could use.
    shed_share: Annotated[Share | None, describe_metric("Share of events shed")] = None
    console_available: Annotated[float | None, describe_metric("1 if the console responds, else 0")] = None
    nodes_in_use: Annotated[int | None, describe_metric("Online nodes")] = None
    nodes: int | None = None
    workers_busy: Annotated[int | None, describe_metric("Busy workers")] = None
    workers_at_work: Annotated[float | None, describe_metric("Busy workers, averaged over 1 s")] = None
    worker_slots: Annotated[int | None, describe_metric("Maximum number of workers at once")] = None
    dead_letters: Annotated[int | None, describe_metric("Dead letter events")] = None

    def __post_init__(self) -> None:
        """Fill `workers_at_work` for old versions, which only count busy slots at an instant."""
        if self.workers_at_work is None and self.workers_busy is not None:
            force_setattr(self, "workers_at_work", float(self.workers_busy))


class Snapshot(StoredDocument, frozen=True, kw_only=True):
    """The plant at one instant; null: unknown. Parts are by name, runs by number."""

    seq: Annotated[int, describe("Counts the observer's steps.")] = 0
    at: Annotated[Instant | None, describe("null: an empty snapshot.")] = None
    ahead_seconds: Annotated[
        Seconds | None, describe("Offset of the clock of `at` from the plant's clock, s; positive: ahead.")
    ] = None
    plant: str = "main"
    health: PlantHealth = PlantHealth(NORMAL, "")
    totals: PlantTotals = PlantTotals()
    producers: dict[str, ProducerStatus] = {}
    queues: dict[str, QueueStatus] = {}
    destinations: Annotated[
        dict[str, DestinationStatus],
        describe("What handlers and retry plans have called in the last hour, keyed by name."),
    ] = {}
    nodes: dict[str, NodeStatus] = {}
    hosts: dict[str, HostStatus] = {}
    pipeline: PipelineStatus = PipelineStatus()
    steered_by: PlantHolder | None = None
    plants: dict[str, PlantStatus] = {}
    deeds: Annotated[list[RecentAction], describe("Newest first.")] = []
    loops: dict[str, LoopStatus] = {}
    overrides: Annotated[list[OverrideStatus], describe("Earliest expiry first.")] = []
    hands: Annotated[list[ManualChange], describe("All manual changes, overrides included, earliest end first.")] = []
    windows: Annotated[
        list[PlannedWindowStatus], describe("Planned windows that are active or begin within an hour.")
    ] = []
    states: Annotated[dict[str, SubjectState], describe('Keyed by "kind/name".')] = {}
    problems: Annotated[list[Problem], describe("Current problems, and those that ended in the last 30 min.")] = []
    plans: Annotated[list[PlanStatus], describe("Oldest first.")] = []
    runs: dict[str, RunStatus] = {}
    forecasts: Annotated[dict[str, LoadForecast], describe("Keyed by application, queue:NAME, or plant:NAME.")] = {}
    bands: Annotated[ExpectedBands, describe("Expected ranges of rates.")] = ExpectedBands()
    alerts: Annotated[list[AlertStatus], describe("Most severe first.")] = []
    opening: Annotated[
        dict[str, Instant], describe('When the incident of a subject ("kind/name") opens if its problem lasts.')
    ] = {}
    parts: Annotated[dict[str, PartStatus], describe("Components that the plant depends on.")] = {}
    processes: Annotated[list[ProcessEvent], describe("Recently restarted, and suspended processes.")] = []
    rejected: Annotated[
        dict[str, str], describe("Why the newest declaration of an application can't run, by application.")
    ] = {}
    crowd: Annotated[SlotHolder | None, describe("Who holds the worker slots, if one queue does.")] = None
    objectives: Annotated[dict[str, ObjectiveStatus], describe("Keyed by name.")] = {}

    def to_json(self) -> bytes:
        """Return the stored form."""
        return encode_document(self)

    @classmethod
    def from_json(cls, text: bytes | str) -> "Snapshot":
        """Read the stored form. Raises `BadDocument` naming the field."""
        return decode_document(cls, text, "snapshot")


NOTHING_SEEN = Snapshot()
