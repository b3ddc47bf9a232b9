"""Answers about plants: the registered ones, and a plant's operators and tasks (the control API)."""

from datetime import datetime
from typing import Annotated, NotRequired

from pydantic import Field, RootModel

from console.api.answer.schema import ApiAnswer, Instant, PerSecond, Seconds, build_enum_field
from workers.plants.foreign.adapters import list_kinds


class TaskMeasures(ApiAnswer):
    """Measurements of a task; null: unknown. Counts refer to the plant's window."""

    latency_seconds: Annotated[Seconds | None, Field(description="Time from receiving an event to emitting it, s.")]
    latency_variance: Annotated[float | None, Field(description="s².")]
    service_seconds: Annotated[Seconds | None, Field(description="Time between receiving two successive events, s.")]
    service_variance: Annotated[float | None, Field(description="s².")]
    arrival_interval_seconds: Seconds | None
    arrival_interval_variance: Annotated[float | None, Field(description="s².")]
    utilisation: Annotated[float | None, Field(description="Utilization, as a share.")]
    inputs: Annotated[float | None, Field(description="Number of events received.")]
    inputs_variance: Annotated[float | None, Field(description="Events².")]
    executions: Annotated[float | None, Field(description="Number of events processed.")]
    executions_variance: Annotated[float | None, Field(description="Events².")]
    outputs: Annotated[float | None, Field(description="Number of events emitted.")]
    outputs_variance: Annotated[float | None, Field(description="Events².")]


class OperatorTopology(ApiAnswer):
    """An operator of a plant and the measurements of its tasks."""

    kind: Annotated[
        Annotated[str, build_enum_field(("source", "operator"))], Field(description="A source only emits events.")
    ]
    parallelism: Annotated[int, Field(description="Current number of tasks; 0: unknown.")]
    unknown_tasks: NotRequired[
        Annotated[str | None, Field(description="Why the number of tasks is unknown; absent: known.")]
    ]
    minimum: Annotated[int, Field(description="Minimum number of tasks.")]
    maximum: Annotated[int, Field(description="Maximum number of tasks.")]
    fixed: Annotated[str | None, Field(description="Why the number of tasks can't be set; null: it can be set.")]
    failed: Annotated[float | None, Field(description="Number of failed events from this source in the window.")]
    acked: Annotated[float | None, Field(description="Number of completed events from this source in the window.")]
    waiting: NotRequired[
        Annotated[float | None, Field(description="Number of events waiting for the operator; null: not counted.")]
    ]
    tasks: Annotated[list[TaskMeasures], Field(description="Measurements of each task, in order.")]


class OperatorLink(ApiAnswer):
    source: Annotated[str, Field(description="The sending operator.")]
    target: Annotated[str, Field(description="The receiving operator.")]
    latency_seconds: Annotated[Seconds | None, Field(description="Time from sending to receiving an event, s.")]
    batching_seconds: Annotated[Seconds | None, Field(description="Part of the latency in the sender's buffer, s.")]


class PlantTopology(ApiAnswer):
    """A plant's operators and links, measured at one time."""

    plant: str
    at: Instant
    window_seconds: Annotated[Seconds, Field(description="Length of the window of the counts, s.")]
    holder: Annotated[str | None, Field(description="Another controller that holds the plant; null: none.")]
    held_until: Instant | None
    operators: dict[str, OperatorTopology]
    links: list[OperatorLink]


class PlantHolder(ApiAnswer):
    """The holder of a plant in the control API."""

    holder: str
    until: Instant


class PlantSection(ApiAnswer):
    """Additional data of a plant, as a table."""

    title: str
    about: str
    columns: list[str]
    rows: Annotated[list[list[str | float | None]], Field(description="One value per column; null: unknown.")]
    empty: Annotated[str, Field(description="Text to show if there are no rows.")]


class PartitionLag(ApiAnswer):
    """One partition as a consumer group reads it."""

    topic: str
    partition: int
    committed: Annotated[int | None, Field(description="The offset of the group's next event.")]
    end: Annotated[int | None, Field(description="The offset of the next event to be appended.")]
    lag_events: Annotated[int | None, Field(description="null: not counted; `said` has the reason.")]
    lag_seconds: Annotated[Seconds | None, Field(description="The age of the group's next event, s.")]
    at_least: Annotated[bool, Field(description="Whether the lag may be larger.")]
    expired_events: Annotated[int, Field(description="Number of events that expired before the group read them.")]
    member: Annotated[str, Field(description="The consumer that reads the partition.")]
    said: str


class GroupMember(ApiAnswer):
    """A consumer of a group."""

    client: str
    host: str
    partitions: int


class ConsumerGroup(ApiAnswer):
    """A consumer group of a plant's logs, and its lag."""

    state: str
    members: list[GroupMember]
    topics: list[str]
    lag_events: Annotated[int | None, Field(description="Total lag of all counted partitions.")]
    lag_seconds: Annotated[Seconds | None, Field(description="Lag of the partition that is furthest behind, s.")]
    at_least: Annotated[bool, Field(description="Whether the lag may be larger.")]
    trend: Annotated[str | None, Field(description="Trend of the lag in events: rising, falling, or steady.")]
    in_per_second: PerSecond | None
    out_per_second: PerSecond | None
    clearing_seconds: Annotated[
        Seconds | None, Field(description="Time to process the backlog at the current rates, s.")
    ]
    expired_events: int
    partition_count: int
    partitions: Annotated[list[PartitionLag], Field(description="The partitions that are furthest behind.")]


class SensorStatus(ApiAnswer):
    """A number that a plant's declaration names."""

    value: Annotated[float | None, Field(description="null: unknown. Unreliable if there is an error.")]
    silent_seconds: Annotated[Seconds, Field(description="Time since the last known value, s.")]
    unit: str
    title: str
    error: str | None


class ProofStatus(ApiAnswer):
    """Evidence that a task request took effect."""

    sensor: str
    value: Annotated[float | None, Field(description="Current value of the sensor; null: unknown.")]
    within_seconds: Annotated[
        Seconds, Field(description="Time within which the sensor must show the requested number, s.")
    ]


class PlantOrderRow(ApiAnswer):
    """The last task request of Weir for an operator, and the current number of tasks."""

    tasks: Annotated[int, Field(description="Requested number of tasks.")]
    at: Annotated[Instant, Field(description="Time of the request.")]
    by: Annotated[str, Field(description="The loop or user that made the request.")]
    now: Annotated[int | None, Field(description="Current number of tasks.")]
    since: Annotated[Instant | None, Field(description="When the current number of tasks was first observed.")]
    state: Annotated[
        Annotated[str, build_enum_field(("pending", "reached", "missed", "undone"))],
        Field(
            description=(
                "missed: not reached in time; undone: changed by another controller. Loops hold in both states."
            )
        ),
    ]
    waiting_since: Instant | None


class PoolSamplesRow(ApiAnswer):
    """Completions of an operator's pool while all of its tasks had work, at its present size."""

    since: Annotated[Instant, Field(description="Start of the count.")]
    seq: int | None
    recent_seconds: Annotated[
        list[float], Field(description="Times between completions, s; the newest has the number `seq`.")
    ]
    full_seconds: Annotated[
        Seconds | None, Field(description="Time since `since` during which all tasks were busy, s.")
    ]
    per_second: PerSecond | None


class UnservedQueueRow(ApiAnswer):
    """A queue of a plant without a consumer."""

    waiting: Annotated[int, Field(description="Number of waiting tasks.")]
    seconds: Annotated[Seconds, Field(description="Time without a consumer, s.")]


class SnapshotPlant(ApiAnswer):
    """A registered plant in the snapshot; most views omit its topology."""

    kind: str
    state: str
    age_seconds: Seconds | None
    error: str | None
    tasks: int | None
    in_per_second: PerSecond | None
    latency_seconds: Annotated[Seconds | None, Field(description="Latency of the slowest path, s.")]
    steered_by: PlantHolder | None
    silent_seconds: NotRequired[
        Annotated[Seconds, Field(description="Time since the last observation, or since the first request, s.")]
    ]
    topology: NotRequired[PlantTopology | None]
    sections: NotRequired[list[PlantSection]]
    groups: NotRequired[dict[str, ConsumerGroup]]
    sensors: NotRequired[dict[str, SensorStatus]]
    revisions: NotRequired[Annotated[dict[str, str], Field(description="Deployed revision of each part.")]]
    proofs: NotRequired[dict[str, ProofStatus]]
    set_to: NotRequired[
        Annotated[dict[str, int], Field(description="The plant's own target number of tasks, by operator.")]
    ]
    lives: NotRequired[Annotated[dict[str, float], Field(description="Unix time at which each operator started.")]]
    completions: NotRequired[dict[str, PoolSamplesRow]]
    missed_workers: NotRequired[
        Annotated[dict[str, float], Field(description="Time since each worker last responded, s.")]
    ]
    unserved_queues: NotRequired[dict[str, UnservedQueueRow]]
    orders: NotRequired[dict[str, PlantOrderRow]]


class TaskChannel(ApiAnswer):
    """A channel between two tasks."""

    source: str
    target: str
    latency: Annotated[float | None, Field(description="ms.")]
    batching: Annotated[float | None, Field(description="Part of the latency in the sender's buffer, ms.")]


class PhysicalTopology(ApiAnswer):
    tasks: Annotated[dict[str, list[str]], Field(description="The names of each operator's tasks.")]
    channels: list[TaskChannel]


class OperatorNames(RootModel[list[str]]):
    """Names of operators."""


class LogicalTopology(RootModel[dict[str, list[str]]]):
    """The operators of each path, in order."""


class TaskCount(RootModel[int]):
    """The tasks of an operator."""


class EventCount(RootModel[float | None]):
    """Events in the plant's window; null: unknown."""


class Milliseconds(RootModel[float | None]):
    """Milliseconds; null: unknown."""


class TaskMilliseconds(RootModel[dict[str, float | None]]):
    """Milliseconds by task; null: unknown."""


class TaskMillisecondsVariance(RootModel[dict[str, float | None]]):
    """Milliseconds² by task; null: unknown."""


class TaskEventCounts(RootModel[dict[str, float | None]]):
    """Events in the plant's window by task; null: unknown."""


class TaskEventCountsVariance(RootModel[dict[str, float | None]]):
    """Events² by task; null: unknown."""


class TasksSet(RootModel[bool]):
    """true: the tasks are set."""


class PlantRelease(RootModel[bool]):
    """false: the caller did not hold the plant."""


class PlantRow(ApiAnswer):
    """The address of a plant, and its last observation."""

    name: str
    kind: Annotated[str, build_enum_field(tuple(list_kinds()))]
    url: str
    secret_environment: Annotated[str, Field(description="Environment variable with the token.")]
    options: dict[str, str]
    created_at: datetime
    digest: Annotated[str, Field(description="Digest of the registration. A change with an older digest is rejected.")]
    seen: SnapshotPlant | None
    left: NotRequired[
        Annotated[str, Field(description="Changes that may remain in effect at the previous address, and what to do.")]
    ]
    advising: NotRequired[
        Annotated[list[str], Field(description="Existing loops of the plant, which are in mode advise again.")]
    ]


class PlantList(ApiAnswer):
    plants: list[PlantRow]


class PlantRemoval(ApiAnswer):
    removed: str
    left: NotRequired[
        Annotated[str, Field(description="Changes that may remain in effect at the plant, and what to do.")]
    ]


class TasksByHand(ApiAnswer):
    """Tasks that were set by hand."""

    plant: str
    operator: str
    tasks: int
    until: Annotated[Instant, Field(description="Loops hold until this Unix time.")]


class HandRelease(ApiAnswer):
    plant: str
    released: bool


class PlantResumption(ApiAnswer):
    plant: str
    forgotten: Annotated[int, Field(description="Number of discarded task requests.")]


class FoundPart(ApiAnswer):
    """A part of an inspected plant."""

    name: str
    kind: str
    tasks: int | None
    minimum: int | None
    maximum: int | None
    fixed: Annotated[str | None, Field(description="Why the number of tasks can't be set; null: it can be set.")]


class PlantInspection(ApiAnswer):
    """The result of inspecting an address."""

    kind: str
    sentences: Annotated[list[str], Field(description="The result in sentences.")]
    what: str
    name: Annotated[str, Field(description="The name that the system reports; empty: none.")]
    said: list[str]
    parts: list[FoundPart]
    needs: Annotated[
        list[str], Field(description="Unmet requirements for Weir to observe or control more of the plant.")
    ]
    choices: Annotated[dict[str, list[str]], Field(description="Possible values of each option.")]


class InterventionKindRow(ApiAnswer):
    """An available intervention."""

    name: str
    title: str
    subject: Annotated[str, Field(description="Subject of the intervention.")]
    value: Annotated[str, Field(description="Additional argument; empty: none.")]
    lasting: Annotated[bool, Field(description="Whether the intervention stays in force until it is undone.")]


class InterventionRow(ApiAnswer):
    """An intervention in force."""

    kind: str
    subject: str
    value: str
    before: Annotated[str, Field(description="The value to restore, in the format of the adapter.")]
    by: str
    until: Instant
    error: Annotated[str, Field(description="Why the last attempt to undo it failed; empty: no failed attempt.")]
    tried_at: Instant | None


class PlantInterventions(ApiAnswer):
    interventions: list[InterventionKindRow]
    in_force: Annotated[list[InterventionRow], Field(description="Earliest end first.")]


class InterventionResult(ApiAnswer):
    plant: str
    kind: str
    subject: str
    in_force: bool
