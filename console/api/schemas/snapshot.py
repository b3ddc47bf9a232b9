"""The snapshot: the plant at one instant. null: unknown. Views omit fields of rows."""

from typing import Annotated, NotRequired

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
    build_enum_field,
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

NodeState = Annotated[str, build_enum_field(STATES)]
Severity = Annotated[str, build_enum_field(SEVERITIES)]
Trend = Annotated[str, build_enum_field(("rising", "falling", "steady"))]


class StateFinding(ApiAnswer):
    """A problem of a subject."""

    subject: Annotated[str, Field(description='"kind/name"; "" for several similar subjects.')]
    severity: Severity
    sign: NodeState | None
    sentence: str
    step: Annotated[str, Field(description="The recommended first step.")]
    since: Instant | None


class PlantHealth(ApiAnswer):
    state: NodeState
    sentence: Annotated[str, Field(description="The worst problem.")]
    doing: NotRequired[Annotated[str, Field(description="Current actions of plans, loops, and users.")]]
    severity: NotRequired[Severity]
    findings: NotRequired[Annotated[list[StateFinding], Field(description="Worst first.")]]
    word: NotRequired[Annotated[str, Field(description="The state in a word, shown before the sentence.")]]


class EvaluatedState(ApiAnswer):
    """The state of a subject, which pages and alerts share."""

    kind: Annotated[str, build_enum_field(KINDS)]
    name: str
    severity: Severity
    sign: Annotated[NodeState | None, Field(description="The state that sets the color and icon of the subject.")]
    word: str
    stale: Annotated[bool, Field(description="Whether its data is out of date.")]
    since: Instant | None
    finding: str
    also: Annotated[list[StateFinding], Field(description="Other problems.")]
    step: str
    within: Annotated[str | None, Field(description="The subject that explains the problem.")]
    rules: Annotated[list[str], Field(description="The alert rules whose threshold it exceeds.")]


class Hand(ApiAnswer):
    """A manual change that is no override of a loop."""

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
    backlog_change_events: NotRequired[Events | None]
    backlog_trend: NotRequired[Trend | None]
    backlog_seconds: Annotated[Seconds | None, Field(description="Longest wait of all queues, s.")]
    shed_share: Share | None
    console_available: NotRequired[
        Annotated[Share | None, Field(description="1: the console is responding; 0: not responding.")]
    ]
    nodes_in_use: int
    nodes: int
    workers_busy: int
    workers_at_work: NotRequired[Annotated[float | None, Field(description="Busy slots, mean of the last second.")]]
    worker_slots: int
    dead_letters: int | None


class EventSample(ApiAnswer):
    """Events by value, only the eight most frequent."""

    events: Annotated[int, Field(description="Number of samples.")]
    type: dict[str, int]
    key: dict[str, int]
    source: dict[str, int]


class ProducerFigures(ApiAnswer):
    in_per_second: PerSecond | None
    age_seconds: Annotated[Seconds, Field(description="Time since the last report, s.")]
    queues: dict[str, PerSecond | None]
    rejected: Annotated[Events, Field(description="Number of malformed events.")]
    rerouted: Events
    samples: NotRequired[
        Annotated[
            dict[str, EventSample], Field(description="Samples of published events, by queue; only the busiest queues.")
        ]
    ]


class SnapshotPause(ApiAnswer):
    """A temporary stop by a person."""

    part: Annotated[str, Field(description="intake or consumption (of a queue), or work (of a worker host).")]
    override: Annotated[int, Field(description="ID of the override.")]
    since: Instant | None
    until: Instant | None
    by: str
    reason: str


class SnapshotContainer(ApiAnswer):
    """A queue on one node."""

    points: NotRequired[Points | None]
    waiting_events: NotRequired[Events | None]
    waiting_bytes: NotRequired[Bytes | None]
    in_per_second: NotRequired[PerSecond | None]
    out_per_second: NotRequired[PerSecond | None]
    dead_per_second: NotRequired[PerSecond | None]
    load: NotRequired[Annotated[float | None, Field(description="Share of the node's capacity.")]]
    server_time_share: NotRequired[Share | None]
    oldest_seconds: NotRequired[Annotated[Seconds | None, Field(description="Wait of the oldest event, s.")]]
    inserted_events: NotRequired[Events | None]
    removed_events: NotRequired[Events | None]
    leaving_blocks: NotRequired[
        Annotated[int, Field(description="Number of blocks that are being transferred to another node.")]
    ]
    dead_letters: NotRequired[int | None]
    retry_blocks: NotRequired[int | None]
    waiting_to_run: NotRequired[
        Annotated[int | None, Field(description="Number of started workers that wait for a process.")]
    ]
    workers_started: NotRequired[int | None]
    workers_busy: NotRequired[int | None]


class SnapshotQueue(ApiAnswer):
    """Live figures of a queue."""

    kind: Annotated[str, build_enum_field(Queue.Kind.values)]
    handler: str | None
    sink: NotRequired[str | None]
    priority: int
    minimum_containers: int
    in_per_second: PerSecond | None
    out_per_second: PerSecond | None
    waiting_events: Events | None
    waiting_bytes: Bytes | None
    wait_seconds: Annotated[Seconds | None, Field(description="Wait of the oldest event, s.")]
    clearing_seconds: NotRequired[
        Annotated[Seconds | None, Field(description="Time to process the backlog at the current rate, s.")]
    ]
    trend: NotRequired[Annotated[Trend | None, Field(description="Trend of the waiting events.")]]
    oldest_seconds: Seconds | None
    latency_p95_seconds: Seconds | None
    dead_letters: int | None
    retry_blocks: int | None
    workers_at_once: float | None
    service_seconds: Annotated[Seconds | None, Field(description="Processing time of one event, s.")]
    trouble: NotRequired[Annotated[str | None, Field(description="The last error of its workers.")]]
    pauses: NotRequired[
        Annotated[list[SnapshotPause], Field(description="Active pauses of its intake or consumption.")]
    ]
    containers: Annotated[dict[str, SnapshotContainer], Field(description="Keyed by node.")]


class SnapshotNode(ApiAnswer):
    """Live figures of a node."""

    state: NotRequired[NodeState | None]
    stale: NotRequired[Annotated[bool | None, Field(description="Whether it missed two heartbeats.")]]
    age_seconds: NotRequired[Seconds | None]
    utilisation: NotRequired[Share | None]
    raw: NotRequired[Annotated[Share | None, Field(description="The utilization before smoothing.")]]
    parts: NotRequired[
        Annotated[dict[str, Share | None], Field(description="Utilization by resource, such as CPU or memory.")]
    ]
    busy: NotRequired[Annotated[Share | None, Field(description="Threshold of the state BUSY.")]]
    toobusy: NotRequired[Annotated[Share | None, Field(description="Threshold of the state TOOBUSY.")]]
    in_per_second: NotRequired[PerSecond | None]
    out_per_second: NotRequired[PerSecond | None]
    memory_bytes: NotRequired[Bytes | None]
    memory_capacity_bytes: NotRequired[Bytes | None]
    capacity_events_per_second: NotRequired[PerSecond | None]
    points: NotRequired[Points | None]
    containers: NotRequired[int | None]
    drained: NotRequired[bool | None]
    cordoned: NotRequired[bool | None]
    last_state: NotRequired[NodeState | None]
    ahead_seconds: NotRequired[
        Annotated[
            Seconds | None, Field(description="Clock offset of its agent from the control server, s; positive: ahead.")
        ]
    ]
    unreadable: NotRequired[
        Annotated[str | None, Field(description="Why the newest heartbeat can't be read; null: readable.")]
    ]


class CompletedWork(ApiAnswer):
    """Completed work of a process pool."""

    seq: int
    recent_seconds: list[Seconds]
    full_seconds: Seconds
    per_second: PerSecond | None


class HostStatus(ApiAnswer):
    """A pool of worker processes."""

    role: NotRequired[str | None]
    slots: NotRequired[int | None]
    busy: NotRequired[int | None]
    at_work: NotRequired[Annotated[float | None, Field(description="Busy processes, mean of the last second.")]]
    reserved: NotRequired[Annotated[int | None, Field(description="Number of unfinished tasks.")]]
    drained: NotRequired[Annotated[bool | None, Field(description="Whether it accepts no new work.")]]
    draining: NotRequired[Annotated[SnapshotPause | None, Field(description="The active drain.")]]
    age_seconds: NotRequired[Seconds | None]
    pid: NotRequired[int | None]
    resizable: NotRequired[bool | None]
    started_with: NotRequired[int | None]
    trouble: NotRequired[Annotated[str | None, Field(description="Its last error.")]]
    done: NotRequired[CompletedWork | None]
    ahead_seconds: NotRequired[
        Annotated[Seconds | None, Field(description="Clock offset from the control server, s; positive: ahead.")]
    ]


class SnapshotLoop(ApiAnswer):
    """A loop and its last decision."""

    id: NotRequired[int | None]
    law: NotRequired[str | None]
    target: NotRequired[dict[str, str]]
    mode: NotRequired[Annotated[str, build_enum_field(Loop.Mode.values)] | None]
    measured: NotRequired[Json]
    setpoint: NotRequired[Json]
    actuator: NotRequired[Json]
    at: NotRequired[Instant | None]
    reason: NotRequired[str | None]
    verdict: NotRequired[Annotated[str, build_enum_field(LedgerEntry.Verdict.values)] | None]
    entry: NotRequired[int | None]
    overrides: NotRequired[int]
    terms: NotRequired[dict[str, Json]]
    interval_seconds: NotRequired[Seconds | None]
    limited_by: NotRequired[str | None]
    blind_since: NotRequired[
        Annotated[Instant | None, Field(description="Start of the time without a valid measurement.")]
    ]
    late_seconds: NotRequired[Annotated[Seconds | None, Field(description="Delay of the last tick, s.")]]
    cause: NotRequired[Annotated[str | None, Field(description="Why the loop has no valid measurement, if known.")]]
    last_mode: NotRequired[
        Annotated[
            Annotated[str, build_enum_field(Loop.Mode.values)] | None,
            Field(description="Mode of the last decision. The decision applies only in this mode."),
        ]
    ]


class SnapshotRun(ApiAnswer):
    """A run of a batch task."""

    task: str
    state: Annotated[str, build_enum_field(Run.State.values)]
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
    """The last actions of a law's loops."""

    law: str
    entry: int
    at: Instant
    verdict: Annotated[str, build_enum_field(LedgerEntry.Verdict.values)]
    did: str
    points: Points


class LoadForecast(ApiAnswer):
    """The forecast load of an application."""

    at: Instant
    window_seconds: Seconds
    mean_per_second: Annotated[list[PerSecond] | None, Field(description="One value per window.")]
    deviation_per_second: list[PerSecond] | None
    days: Annotated[float, Field(description="Length of the past data, days.")]
    trained_until: str | None
    refused: Annotated[str | None, Field(description="Why there is no forecast.")]


class PlantPart(ApiAnswer):
    """The state of a component that the plant depends on."""

    state: Annotated[str, build_enum_field(("starting", "running", "stopping", "stopped", "failed", "silent"))]
    since: Instant
    grace_until: NotRequired[
        Annotated[
            Instant | None, Field(description="Until this time, missing components are attributed to the startup.")
        ]
    ]


class RateChange(ApiAnswer):
    at: Instant
    before: Annotated[float, Field(description="Median before the change, events/s.")]
    after: float


class RateBand(ApiAnswer):
    low: Annotated[float, Field(description="Lower bound of this minute's mean, events/s.")]
    high: float
    days: Annotated[float, Field(description="Length of the past data, days.")]
    minute: NotRequired[Annotated[float | None, Field(description="Mean of the newest complete minute, events/s.")]]
    changes: NotRequired[Annotated[list[RateChange], Field(description=("Sustained rate changes in the last day."))]]


class RateBands(ApiAnswer):
    totals: NotRequired[
        Annotated[dict[str, RateBand], Field(description="Keyed by rate: in_per_second or out_per_second.")]
    ]
    queues: NotRequired[Annotated[dict[str, dict[str, RateBand]], Field(description="Keyed by queue, then by rate.")]]


class PlantSnapshot(ApiAnswer):
    """The plant at one instant."""

    seq: int
    at: Instant
    ahead_seconds: NotRequired[
        Annotated[
            Seconds | None, Field(description="Offset of the clock of `at` from the plant's clock, s; positive: ahead.")
        ]
    ]
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
    hands: NotRequired[list[Hand]]
    states: NotRequired[Annotated[dict[str, EvaluatedState], Field(description='Keyed by "kind/name".')]]
    plans: list[PlanSummary]
    runs: NotRequired[dict[str, SnapshotRun]]
    alerts: list[OpenAlert]
    deeds: NotRequired[Annotated[list[RecentAction], Field(description="Newest first.")]]
    steered_by: PlantHolder | None
    plants: dict[str, SnapshotPlant]
    forecasts: NotRequired[
        Annotated[dict[str, LoadForecast], Field(description="Keyed by application, or by plant:NAME.")]
    ]
    bands: NotRequired[Annotated[RateBands, Field(description="Expected ranges of rates.")]]
    parts: NotRequired[Annotated[dict[str, PlantPart], Field(description="Components that the plant depends on.")]]
    objectives: NotRequired[Annotated[dict[str, ObjectiveStatus], Field(description="Keyed by name.")]]


class SnapshotMessage(ApiAnswer):
    """The newest snapshot, as the first message of a websocket."""

    seq: int
    at: Instant
    topic: Annotated[str, build_enum_field(("plant",))]
    snapshot: PlantSnapshot
