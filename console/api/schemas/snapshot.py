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
    """A problem of a subject."""

    subject: Annotated[str, Field(description='"kind/name"; "" of several alike.')]
    severity: Severity
    sign: NodeState | None
    sentence: str
    step: Annotated[str, Field(description="What to do first.")]
    since: Instant | None


class PlantHealth(ApiAnswer):
    state: NodeState
    sentence: Annotated[str, Field(description="What is worst.")]
    doing: NotRequired[Annotated[str, Field(description="What plans, loops and people do about it.")]]
    severity: NotRequired[Severity]
    findings: NotRequired[Annotated[list[StateFinding], Field(description="The worst first.")]]
    word: NotRequired[Annotated[str, Field(description="What is read before the sentence.")]]


class EvaluatedState(ApiAnswer):
    """The state of a subject, which pages and alerts share."""

    kind: Annotated[str, one_of(KINDS)]
    name: str
    severity: Severity
    sign: Annotated[NodeState | None, Field(description="The colour and the glyph that it is drawn with.")]
    word: str
    stale: Annotated[bool, Field(description="What is shown of it is old.")]
    since: Instant | None
    finding: str
    also: Annotated[list[StateFinding], Field(description="What else is wrong with it.")]
    step: str
    within: Annotated[str | None, Field(description="The subject that explains it.")]
    rules: Annotated[list[str], Field(description="The alert rules beyond whose threshold it is.")]


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
    backlog_seconds: Annotated[Seconds | None, Field(description="Of the queue that waits longest, s.")]
    shed_share: Share | None
    console_available: NotRequired[
        Annotated[Share | None, Field(description="1 where the console answers, else 0.")]
    ]
    nodes_in_use: int
    nodes: int
    workers_busy: int
    workers_at_work: NotRequired[
        Annotated[float | None, Field(description="Slots at work, the mean of the last second.")]
    ]
    worker_slots: int
    dead_letters: int | None


class EventSample(ApiAnswer):
    """Events by value, only the eight most frequent."""

    events: Annotated[int, Field(description="How many were sampled.")]
    type: dict[str, int]
    key: dict[str, int]
    source: dict[str, int]


class ProducerFigures(ApiAnswer):
    in_per_second: PerSecond | None
    age_seconds: Annotated[Seconds, Field(description="Since it was heard, s.")]
    queues: dict[str, PerSecond | None]
    rejected: Annotated[Events, Field(description="Malformed events.")]
    rerouted: Events
    samples: NotRequired[
        Annotated[dict[str, EventSample], Field(description="By queue what is published; the busiest alone.")]
    ]


class SnapshotPause(ApiAnswer):
    """A temporary stop by a person."""

    part: Annotated[str, Field(description="intake or consumption of a queue, work of a worker host.")]
    override: Annotated[int, Field(description="Its number among the overrides.")]
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
    load: NotRequired[Annotated[float | None, Field(description="The share of its node's capacity.")]]
    server_time_share: NotRequired[Share | None]
    oldest_seconds: NotRequired[
        Annotated[Seconds | None, Field(description="For how long the oldest event has waited, s.")]
    ]
    inserted_events: NotRequired[Events | None]
    removed_events: NotRequired[Events | None]
    leaving_blocks: NotRequired[
        Annotated[int, Field(description="Blocks that are being transferred to another node.")]
    ]
    dead_letters: NotRequired[int | None]
    retry_blocks: NotRequired[int | None]
    waiting_to_run: NotRequired[
        Annotated[int | None, Field(description="Workers that are started and wait for a process.")]
    ]
    workers_started: NotRequired[int | None]
    workers_busy: NotRequired[int | None]


class SnapshotQueue(ApiAnswer):
    """Live figures of a queue."""

    kind: Annotated[str, one_of(Queue.Kind.values)]
    handler: str | None
    sink: NotRequired[str | None]
    priority: int
    minimum_containers: int
    in_per_second: PerSecond | None
    out_per_second: PerSecond | None
    waiting_events: Events | None
    waiting_bytes: Bytes | None
    wait_seconds: Annotated[Seconds | None, Field(description="For how long the oldest event has waited, s.")]
    clearing_seconds: NotRequired[
        Annotated[Seconds | None, Field(description="How long what waits takes at the present rate, s.")]
    ]
    trend: NotRequired[Annotated[Trend | None, Field(description="Of the waiting events.")]]
    oldest_seconds: Seconds | None
    latency_p95_seconds: Seconds | None
    dead_letters: int | None
    retry_blocks: int | None
    workers_at_once: float | None
    service_seconds: Annotated[Seconds | None, Field(description="Of one event, s.")]
    trouble: NotRequired[Annotated[str | None, Field(description="The last error of its workers.")]]
    pauses: NotRequired[
        Annotated[list[SnapshotPause], Field(description="In force, of its intake or consumption.")]
    ]
    containers: Annotated[dict[str, SnapshotContainer], Field(description="By node.")]


class SnapshotNode(ApiAnswer):
    """Live figures of a node."""

    state: NotRequired[NodeState | None]
    stale: NotRequired[Annotated[bool | None, Field(description="Not heard for two beats.")]]
    age_seconds: NotRequired[Seconds | None]
    utilisation: NotRequired[Share | None]
    raw: NotRequired[Annotated[Share | None, Field(description="The utilisation before it is smoothed.")]]
    parts: NotRequired[Annotated[dict[str, Share | None], Field(description="Of CPU, memory, events, …")]]
    busy: NotRequired[Annotated[Share | None, Field(description="The threshold.")]]
    toobusy: NotRequired[Annotated[Share | None, Field(description="The threshold.")]]
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
        Annotated[Seconds | None, Field(description="Its agent's clock, ahead of the control server's.")]
    ]
    unreadable: NotRequired[
        Annotated[str | None, Field(description="Why its newest heartbeat can't be read; null: it can.")]
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
    at_work: NotRequired[
        Annotated[float | None, Field(description="Processes at work, the mean of the last second.")]
    ]
    reserved: NotRequired[Annotated[int | None, Field(description="Tasks handed to it and not finished.")]]
    drained: NotRequired[Annotated[bool | None, Field(description="It takes no new work.")]]
    draining: NotRequired[Annotated[SnapshotPause | None, Field(description="Since somebody drained it.")]]
    age_seconds: NotRequired[Seconds | None]
    pid: NotRequired[int | None]
    resizable: NotRequired[bool | None]
    started_with: NotRequired[int | None]
    trouble: NotRequired[Annotated[str | None, Field(description="Its last error.")]]
    done: NotRequired[CompletedWork | None]
    ahead_seconds: NotRequired[
        Annotated[Seconds | None, Field(description="Its clock, ahead of the control server's.")]
    ]


class SnapshotLoop(ApiAnswer):
    """A loop and its last decision."""

    id: NotRequired[int | None]
    law: NotRequired[str | None]
    target: NotRequired[dict[str, str]]
    mode: NotRequired[Annotated[str, one_of(Loop.Mode.values)] | None]
    measured: NotRequired[Json]
    setpoint: NotRequired[Json]
    actuator: NotRequired[Json]
    at: NotRequired[Instant | None]
    reason: NotRequired[str | None]
    verdict: NotRequired[Annotated[str, one_of(LedgerEntry.Verdict.values)] | None]
    entry: NotRequired[int | None]
    overrides: NotRequired[int]
    terms: NotRequired[dict[str, Json]]
    interval_seconds: NotRequired[Seconds | None]
    limited_by: NotRequired[str | None]
    blind_since: NotRequired[
        Annotated[Instant | None, Field(description="Without a valid measurement since then.")]
    ]
    late_seconds: NotRequired[
        Annotated[Seconds | None, Field(description="How much later than due its last tick came.")]
    ]
    cause: NotRequired[
        Annotated[str | None, Field(description="Why it has no valid measurement, where that is known.")]
    ]
    last_mode: NotRequired[
        Annotated[
            Annotated[str, one_of(Loop.Mode.values)] | None,
            Field(description="The mode of its last decision, which is in force only in that mode."),
        ]
    ]


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
    """The last actions of a law's loops."""

    law: str
    entry: int
    at: Instant
    verdict: Annotated[str, one_of(LedgerEntry.Verdict.values)]
    did: str
    points: Points


class LoadForecast(ApiAnswer):
    """The forecast load of an application."""

    at: Instant
    window_seconds: Seconds
    mean_per_second: Annotated[list[PerSecond] | None, Field(description="Per window.")]
    deviation_per_second: list[PerSecond] | None
    days: Annotated[float, Field(description="Of the past that it is made of.")]
    trained_until: str | None
    refused: Annotated[str | None, Field(description="Why there is none.")]


class PlantPart(ApiAnswer):
    """The state of a part that the plant runs on."""

    state: Annotated[str, one_of(("starting", "running", "stopping", "stopped", "failed", "silent"))]
    since: Instant
    grace_until: NotRequired[
        Annotated[Instant | None, Field(description="What it lacks counts as its start's until then.")]
    ]


class RateChange(ApiAnswer):
    at: Instant
    before: Annotated[float, Field(description="Events/s, as the median of the time before.")]
    after: float


class RateBand(ApiAnswer):
    low: Annotated[float, Field(description="Events/s, for the mean of this minute.")]
    high: float
    days: Annotated[float, Field(description="Of the past that it rests on.")]
    minute: NotRequired[Annotated[float | None, Field(description="The mean of the newest whole minute.")]]
    changes: NotRequired[
        Annotated[list[RateChange], Field(description="When it went to another level and stayed, last day.")]
    ]


class RateBands(ApiAnswer):
    totals: NotRequired[
        Annotated[dict[str, RateBand], Field(description="By rate: in_per_second, out_per_second.")]
    ]
    queues: NotRequired[Annotated[dict[str, dict[str, RateBand]], Field(description="By queue and rate.")]]


class PlantSnapshot(ApiAnswer):
    """The plant at one instant."""

    seq: int
    at: Instant
    ahead_seconds: NotRequired[
        Annotated[Seconds | None, Field(description="The clock that gave `at`, ahead of the plant's.")]
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
    states: NotRequired[Annotated[dict[str, EvaluatedState], Field(description='By "kind/name".')]]
    plans: list[PlanSummary]
    runs: NotRequired[dict[str, SnapshotRun]]
    alerts: list[OpenAlert]
    deeds: NotRequired[Annotated[list[RecentAction], Field(description="The newest first.")]]
    steered_by: PlantHolder | None
    plants: dict[str, SnapshotPlant]
    forecasts: NotRequired[
        Annotated[dict[str, LoadForecast], Field(description="By application, or plant:NAME.")]
    ]
    bands: NotRequired[Annotated[RateBands, Field(description="In which rates are expected.")]]
    parts: NotRequired[Annotated[dict[str, PlantPart], Field(description="What the plant runs on.")]]
    objectives: NotRequired[Annotated[dict[str, ObjectiveStatus], Field(description="By name.")]]


class SnapshotMessage(ApiAnswer):
    """The newest snapshot, as the first message of a websocket."""

    seq: int
    at: Instant
    topic: Annotated[str, one_of(("plant",))]
    snapshot: PlantSnapshot
