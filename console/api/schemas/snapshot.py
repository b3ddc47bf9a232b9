"""The snapshot: the plant at one instant. null: not known. A view leaves out fields of rows."""

from typing import Annotated

from pydantic import Field

from console.api.answer.schema import (
    ApiAnswer,
    Bytes,
    Events,
    Instant,
    Json,
    PerSecond,
    Points,
    Seconds,
    Share,
    one_of,
)
from console.api.schemas.alerts.alerts import OpenAlert
from console.api.schemas.alerts.objectives import ObjectiveStatus
from console.api.schemas.control import SnapshotOverride
from console.api.schemas.pipeline_status import PipelineStatus
from console.api.schemas.plans import PlanSummary
from console.api.schemas.plants import PlantHolder, SnapshotPlant
from queues.models import Queue
from queues.nodes.node_state import STATES
from workers.documents.states import KINDS, SEVERITIES
from workers.models import LedgerEntry, Loop, Run

NodeState = Annotated[str, one_of(STATES)]
Severity = Annotated[str, one_of(SEVERITIES)]
Trend = Annotated[str, one_of(("rising", "falling", "steady"))]


class StateFinding(ApiAnswer):
    """What is wrong with a subject."""

    subject: str = Field(description='"kind/name"; "" of several alike.')
    severity: Severity
    sign: NodeState | None
    sentence: str
    step: str = Field(description="What to do first.")
    since: Instant | None


class PlantHealth(ApiAnswer):
    state: NodeState
    sentence: str = Field(description="What is worst.")
    doing: str = Field("", description="What plans, loops and people do about it.")
    severity: Severity = "well"
    findings: list[StateFinding] = Field([], description="The worst first.")


class EvaluatedState(ApiAnswer):
    """How a subject is: the one state that pages and alerts read."""

    kind: Annotated[str, one_of(KINDS)]
    name: str
    severity: Severity
    sign: NodeState | None = Field(description="The colour and the glyph that it is drawn with.")
    word: str
    stale: bool = Field(description="What is shown of it is old.")
    since: Instant | None
    finding: str
    also: list[StateFinding] = Field(description="What else is wrong with it.")
    step: str
    within: str | None = Field(description="The subject that explains it.")
    rules: list[str] = Field(description="The alert rules beyond whose threshold it is.")


class Hand(ApiAnswer):
    """What a person set that is no override of a loop."""

    kind: str
    of: str
    value: str
    owner: str
    reason: str
    until: Instant | None


class PlantTotals(ApiAnswer):
    """The whole plant."""

    in_per_second: PerSecond | None
    out_per_second: PerSecond | None
    latency_p95_seconds: Seconds | None
    backlog_events: Events | None
    backlog_change_events: Events | None = None
    backlog_trend: Trend | None = None
    backlog_seconds: Seconds | None = Field(description="Of the queue that waits longest, s.")
    shed_share: Share | None
    console_available: Share | None = Field(None, description="1 where the console answers, else 0.")
    nodes_in_use: int
    nodes: int
    workers_busy: int
    worker_slots: int
    dead_letters: int | None


class ProducerFigures(ApiAnswer):
    in_per_second: PerSecond | None
    age_seconds: Seconds = Field(description="Since it was heard, s.")
    queues: dict[str, PerSecond | None]
    rejected: Events = Field(description="Malformed events.")
    rerouted: Events


class SnapshotPause(ApiAnswer):
    """What a person has stopped for a time."""

    part: str = Field(description="intake or consumption of a queue, work of a worker host.")
    override: int = Field(description="Its number among the overrides.")
    since: Instant | None
    until: Instant | None
    by: str
    reason: str


class SnapshotContainer(ApiAnswer):
    """A queue on one node."""

    points: Points | None = None
    waiting_events: Events | None = None
    waiting_bytes: Bytes | None = None
    in_per_second: PerSecond | None = None
    out_per_second: PerSecond | None = None
    dead_per_second: PerSecond | None = None
    load: float | None = Field(None, description="The share of its node's capacity.")
    server_time_share: Share | None = None
    oldest_seconds: Seconds | None = Field(None, description="For how long the oldest event has waited, s.")
    inserted_events: Events | None = None
    removed_events: Events | None = None
    leaving_blocks: int = Field(0, description="Blocks that are being transferred to another node.")
    dead_letters: int | None = None
    retry_blocks: int | None = None
    waiting_to_run: int | None = Field(None, description="Workers that are started and wait for a process.")
    workers_started: int | None = None
    workers_busy: int | None = None


class SnapshotQueue(ApiAnswer):
    """Live figures of a queue."""

    kind: Annotated[str, one_of(Queue.Kind.values)]
    handler: str | None
    sink: str | None = None
    priority: int
    minimum_containers: int
    in_per_second: PerSecond | None
    out_per_second: PerSecond | None
    waiting_events: Events | None
    waiting_bytes: Bytes | None
    wait_seconds: Seconds | None = Field(description="For how long the oldest event has waited, s.")
    clearing_seconds: Seconds | None = Field(
        None, description="How long what waits takes at the present rate, s."
    )
    trend: Trend | None = Field(None, description="Of the waiting events.")
    oldest_seconds: Seconds | None
    latency_p95_seconds: Seconds | None
    dead_letters: int | None
    retry_blocks: int | None
    workers_at_once: float | None
    service_seconds: Seconds | None = Field(description="Of one event, s.")
    trouble: str | None = Field(None, description="The last error of its workers.")
    pauses: list[SnapshotPause] = Field([], description="In force, of its intake or consumption.")
    containers: dict[str, SnapshotContainer] = Field(description="By node.")


class SnapshotNode(ApiAnswer):
    """Live figures of a node."""

    state: NodeState | None = None
    stale: bool | None = Field(None, description="Not heard for two beats.")
    age_seconds: Seconds | None = None
    utilisation: Share | None = None
    raw: Share | None = Field(None, description="The utilisation before it is smoothed.")
    parts: dict[str, Share | None] = Field({}, description="Of CPU, memory, events, …")
    busy: Share | None = Field(None, description="The threshold.")
    toobusy: Share | None = Field(None, description="The threshold.")
    in_per_second: PerSecond | None = None
    out_per_second: PerSecond | None = None
    memory_bytes: Bytes | None = None
    memory_capacity_bytes: Bytes | None = None
    capacity_events_per_second: PerSecond | None = None
    points: Points | None = None
    containers: int | None = None
    drained: bool | None = None
    cordoned: bool | None = None
    last_state: NodeState | None = None
    ahead_seconds: Seconds | None = Field(
        None, description="Its agent's clock, ahead of the control server's."
    )


class CompletedWork(ApiAnswer):
    """What a pool of processes has completed."""

    seq: int
    recent_seconds: list[Seconds]
    full_seconds: Seconds
    per_second: PerSecond | None


class HostStatus(ApiAnswer):
    """A pool of worker processes."""

    role: str | None = None
    slots: int | None = None
    busy: int | None = None
    reserved: int | None = Field(None, description="Tasks handed to it and not finished.")
    drained: bool | None = Field(None, description="It takes no new work.")
    draining: SnapshotPause | None = Field(None, description="Since somebody drained it.")
    age_seconds: Seconds | None = None
    pid: int | None = None
    resizable: bool | None = None
    started_with: int | None = None
    trouble: str | None = Field(None, description="Its last error.")
    done: CompletedWork | None = None
    ahead_seconds: Seconds | None = Field(None, description="Its clock, ahead of the control server's.")


class SnapshotLoop(ApiAnswer):
    """A loop and its last decision."""

    id: int | None = None
    law: str | None = None
    target: dict[str, str] = {}
    mode: Annotated[str, one_of(Loop.Mode.values)] | None = None
    measured: Json = None
    setpoint: Json = None
    actuator: Json = None
    at: Instant | None = None
    reason: str | None = None
    verdict: Annotated[str, one_of(LedgerEntry.Verdict.values)] | None = None
    entry: int | None = None
    overrides: int = 0
    terms: dict[str, Json] = {}
    interval_seconds: Seconds | None = None
    limited_by: str | None = None
    blind_since: Instant | None = Field(None, description="Without a valid measurement since then.")
    late_seconds: Seconds | None = Field(None, description="How much later than due its last tick came.")
    cause: str | None = Field(None, description="Why it has no valid measurement, where that is known.")
    last_mode: Annotated[str, one_of(Loop.Mode.values)] | None = Field(
        None, description="The mode of its last decision, which is in force only in that mode."
    )


class SnapshotRun(ApiAnswer):
    """A run of a batch task."""

    task: str
    state: Annotated[str, one_of(Run.State.values)]
    share: Share | None
    rows: int
    chunks_done: int
    chunks_total: int | None
    stages_done: int
    stages_total: int
    working: int
    workers_wanted: int
    started_at: Instant | None
    deadline_at: Instant | None


class RecentAction(ApiAnswer):
    """What the loops of a law did last."""

    law: str
    entry: int
    at: Instant
    verdict: Annotated[str, one_of(LedgerEntry.Verdict.values)]
    did: str
    points: Points


class LoadForecast(ApiAnswer):
    """What will be offered to an application."""

    at: Instant
    window_seconds: Seconds
    mean_per_second: list[PerSecond] | None = Field(description="Per window.")
    deviation_per_second: list[PerSecond] | None
    days: float = Field(description="Of the past that it is made of.")
    trained_until: str | None
    refused: str | None = Field(description="Why there is none.")


class PlantPart(ApiAnswer):
    """Whether a part that the plant runs on is there."""

    state: Annotated[str, one_of(("starting", "running", "stopping", "stopped", "failed", "silent"))]
    since: Instant
    grace_until: Instant | None = Field(None, description="What it lacks counts as its start's until then.")


class RateChange(ApiAnswer):
    at: Instant
    before: float = Field(description="Events/s, as the median of the time before.")
    after: float


class RateBand(ApiAnswer):
    low: float = Field(description="Events/s, for the mean of this minute.")
    high: float
    days: float = Field(description="Of the past that it rests on.")
    minute: float | None = Field(None, description="The mean of the newest whole minute.")
    changes: list[RateChange] = Field([], description="When it went to another level and stayed, last day.")


class RateBands(ApiAnswer):
    totals: dict[str, RateBand] = Field({}, description="By rate: in_per_second, out_per_second.")
    queues: dict[str, dict[str, RateBand]] = Field({}, description="By queue and rate.")


class PlantSnapshot(ApiAnswer):
    """The plant at one instant."""

    seq: int
    at: Instant
    plant: str
    health: PlantHealth
    totals: PlantTotals
    producers: dict[str, ProducerFigures]
    queues: dict[str, SnapshotQueue]
    nodes: dict[str, SnapshotNode]
    hosts: dict[str, HostStatus]
    pipeline: PipelineStatus
    loops: dict[str, SnapshotLoop]
    overrides: list[SnapshotOverride]
    hands: list[Hand] = []
    states: dict[str, EvaluatedState] = Field({}, description='By "kind/name".')
    plans: list[PlanSummary]
    runs: dict[str, SnapshotRun] = {}
    alerts: list[OpenAlert]
    deeds: list[RecentAction] = Field([], description="The newest first.")
    steered_by: PlantHolder | None
    plants: dict[str, SnapshotPlant]
    forecasts: dict[str, LoadForecast] = Field({}, description="By application, or plant:NAME.")
    bands: RateBands = Field(RateBands(totals={}, queues={}), description="In which rates are expected.")
    parts: dict[str, PlantPart] = Field({}, description="What the plant runs on.")
    objectives: dict[str, ObjectiveStatus] = Field({}, description="By name.")


class SnapshotMessage(ApiAnswer):
    """The newest snapshot, as a websocket starts with it."""

    seq: int
    at: Instant
    topic: Annotated[str, one_of(("plant",))]
    snapshot: PlantSnapshot
