"""The plant at one instant (`weir:snapshot`), composed by the observer each second and read by all others."""

from msgspec.structs import force_setattr

from common.stored_document import StoredDocument, decode_document, encode_document
from queues.nodes.node_state import NORMAL
from workers.documents.alerts import AlertStatus
from workers.documents.bands import ExpectedBands
from workers.documents.hosts import HostStatus
from workers.documents.loops import LoopStatus, ManualChange, OverrideStatus, RecentAction
from workers.documents.nodes import NodeStatus
from workers.documents.objectives import ObjectiveStatus
from workers.documents.parts import PartStatus
from workers.documents.pipeline import PipelineStatus
from workers.documents.plans import PlanStatus
from workers.documents.plants import LoadForecast, PlantHolder, PlantStatus
from workers.documents.queues import ProducerStatus, QueueStatus, Trend
from workers.documents.states import Severity, SubjectFinding, SubjectState
from workers.documents.work import RunStatus

SILENT_AFTER_SECONDS = 3.0  # from this age on, pages, sockets, and terminals show a snapshot as outdated


class PlantHealth(StoredDocument, frozen=True):
    """The health of the plant.

    state: the sign of the worst problem and its color; sentence: its description. word: the word before the sentence,
    which may differ from the sign's. doing: what plans, loops, and people do about it. findings: all problems, worst
    first; the sentence describes the first.
    """

    state: str
    sentence: str
    doing: str = ""
    severity: Severity = "well"
    findings: list[SubjectFinding] = []
    word: str = ""


class PlantTotals(StoredDocument, frozen=True, kw_only=True):
    """All queues, nodes, and worker hosts of role jobs together.

    backlog_seconds: of the queue with the longest wait; backlog_change_events, backlog_trend: over the last half
    minute. shed_share: of the events that patterns could use. workers_busy: busy slots at this instant,
    workers_at_work: the mean in the last second. console_available: 1 where the console answers, else 0.
    """

    in_per_second: float | None = None
    out_per_second: float | None = None
    latency_p95_seconds: float | None = None
    backlog_events: int | None = None
    backlog_change_events: int | None = None
    backlog_trend: Trend | None = None
    backlog_seconds: float | None = None
    shed_share: float | None = None
    console_available: float | None = None
    nodes_in_use: int | None = None
    nodes: int | None = None
    workers_busy: int | None = None
    workers_at_work: float | None = None
    worker_slots: int | None = None
    dead_letters: int | None = None

    def __post_init__(self) -> None:
        """Fill `workers_at_work` for old versions, which only count busy slots at an instant."""
        if self.workers_at_work is None and self.workers_busy is not None:
            force_setattr(self, "workers_at_work", float(self.workers_busy))


class Snapshot(StoredDocument, frozen=True, kw_only=True):
    """The snapshot.

    seq: counts the observer's steps; at: seconds since 1970, None for an empty snapshot; ahead_seconds: how far the
    observer's clock was ahead of the plant's, None for old versions. Parts are by name, runs by number; overrides: the
    earliest expiry first, plans: the oldest first, alerts: the most severe first,
    `deeds`: the newest first. states: by "kind/name"; empty in snapshots of versions without states. hands:
    manual changes other than overrides. parts: the plant's own software. objectives: by name. bands: expected ranges of
    rates.
    """

    seq: int = 0
    at: float | None = None
    ahead_seconds: float | None = None
    plant: str = "main"
    health: PlantHealth = PlantHealth(NORMAL, "")
    totals: PlantTotals = PlantTotals()
    producers: dict[str, ProducerStatus] = {}
    queues: dict[str, QueueStatus] = {}
    nodes: dict[str, NodeStatus] = {}
    hosts: dict[str, HostStatus] = {}
    pipeline: PipelineStatus = PipelineStatus()
    steered_by: PlantHolder | None = None
    plants: dict[str, PlantStatus] = {}
    deeds: list[RecentAction] = []
    loops: dict[str, LoopStatus] = {}
    overrides: list[OverrideStatus] = []
    hands: list[ManualChange] = []
    states: dict[str, SubjectState] = {}
    plans: list[PlanStatus] = []
    runs: dict[str, RunStatus] = {}
    forecasts: dict[str, LoadForecast] = {}
    bands: ExpectedBands = ExpectedBands()
    alerts: list[AlertStatus] = []
    parts: dict[str, PartStatus] = {}
    objectives: dict[str, ObjectiveStatus] = {}

    def to_json(self) -> bytes:
        """Return the stored form."""
        return encode_document(self)

    @classmethod
    def from_json(cls, text: bytes | str) -> "Snapshot":
        """Read the stored form. Raises `BadDocument` naming the field."""
        return decode_document(cls, text, "snapshot")


NOTHING_SEEN = Snapshot()
