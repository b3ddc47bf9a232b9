"""Answers about plants: the registered ones, and a plant's operators and tasks (the control API)."""

from datetime import datetime
from typing import Annotated, NotRequired

from pydantic import Field, RootModel

from console.api.answer.schema import ApiAnswer, Instant, PerSecond, Seconds, one_of
from workers.plants.foreign.adapters import kinds


class TaskMeasures(ApiAnswer):
    """Measurements of a task; null: unknown. Counts refer to the plant's window."""

    latency_seconds: Annotated[
        Seconds | None, Field(description="From receiving an event to emitting it, s.")
    ]
    latency_variance: Annotated[float | None, Field(description="s².")]
    service_seconds: Annotated[Seconds | None, Field(description="Between receiving two events, s.")]
    service_variance: Annotated[float | None, Field(description="s².")]
    arrival_interval_seconds: Seconds | None
    arrival_interval_variance: Annotated[float | None, Field(description="s².")]
    utilisation: Annotated[float | None, Field(description="A share.")]
    inputs: Annotated[float | None, Field(description="Events received.")]
    inputs_variance: Annotated[float | None, Field(description="Events².")]
    executions: Annotated[float | None, Field(description="Events processed.")]
    executions_variance: Annotated[float | None, Field(description="Events².")]
    outputs: Annotated[float | None, Field(description="Events emitted.")]
    outputs_variance: Annotated[float | None, Field(description="Events².")]


class OperatorTopology(ApiAnswer):
    """An operator of a plant and the measurements of its tasks."""

    kind: Annotated[
        Annotated[str, one_of(("source", "operator"))],
        Field(description=("Whether it is a source, which only brings events in.")),
    ]
    parallelism: Annotated[int, Field(description="Current tasks.")]
    minimum: Annotated[int, Field(description="Minimum tasks that may be set.")]
    maximum: Annotated[int, Field(description="Maximum tasks that may be set.")]
    fixed: Annotated[str | None, Field(description="Why its tasks can't be set; null: they can.")]
    failed: Annotated[float | None, Field(description="For a source: failed events in the window.")]
    acked: Annotated[float | None, Field(description="For a source: completed events in the window.")]
    waiting: NotRequired[Annotated[float | None, Field(description="Waiting events now; null: not counted.")]]
    tasks: Annotated[list[TaskMeasures], Field(description="From the first.")]


class OperatorLink(ApiAnswer):
    source: Annotated[str, Field(description="The operator that emits.")]
    target: Annotated[str, Field(description="The operator that receives.")]
    latency_seconds: Annotated[Seconds | None, Field(description="From emission to receipt, s.")]
    batching_seconds: Annotated[Seconds | None, Field(description="Part of it in the sender's buffer, s.")]


class PlantTopology(ApiAnswer):
    """A plant's operators and links, measured at one time."""

    plant: str
    at: Instant
    window_seconds: Annotated[Seconds, Field(description="Length of the window of counts, s.")]
    holder: Annotated[str | None, Field(description="The holder besides the caller; null: none.")]
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
    rows: Annotated[
        list[list[str | float | None]], Field(description=("A value for each column; null: unknown."))
    ]
    empty: Annotated[str, Field(description="Text to show without rows.")]


class PartitionLag(ApiAnswer):
    """One partition as a consumer group reads it."""

    topic: str
    partition: int
    committed: Annotated[int | None, Field(description="The offset of the group's next event.")]
    end: Annotated[int | None, Field(description="The offset of the next event to be appended.")]
    lag_events: Annotated[int | None, Field(description="null: it is excluded, `said` says why.")]
    lag_seconds: Annotated[Seconds | None, Field(description="The age of the group's next event, s.")]
    at_least: Annotated[bool, Field(description="Whether it may be older.")]
    expired_events: Annotated[
        int, Field(description="Events that retention deleted before the group read them.")
    ]
    member: Annotated[str, Field(description="The consumer that reads it.")]
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
    lag_events: Annotated[int | None, Field(description="Total of the partitions that are included.")]
    lag_seconds: Annotated[Seconds | None, Field(description="Of the partition with the largest lag, s.")]
    at_least: Annotated[bool, Field(description="Whether it may be more.")]
    trend: Annotated[str | None, Field(description="rising, falling, or steady, of the lag in events.")]
    in_per_second: PerSecond | None
    out_per_second: PerSecond | None
    clearing_seconds: Annotated[
        Seconds | None, Field(description="Time until nothing waits, at the present rates, s.")
    ]
    expired_events: int
    partition_count: int
    partitions: Annotated[list[PartitionLag], Field(description="Those with the largest lag.")]


class SensorStatus(ApiAnswer):
    """A number that a plant's declaration names."""

    value: Annotated[float | None, Field(description="null: unknown. With an error it is unreliable.")]
    silent_seconds: Annotated[Seconds, Field(description="Since it was last known, s.")]
    unit: str
    title: str
    error: str | None


class ProofStatus(ApiAnswer):
    """Evidence that an order took effect."""

    sensor: str
    value: Annotated[float | None, Field(description="The current value; null: unknown.")]
    within_seconds: Annotated[Seconds, Field(description="Deadline for the ordered value, s.")]


class PlantOrderRow(ApiAnswer):
    """The last order to an operator from here, and its current value."""

    tasks: Annotated[int, Field(description="Ordered tasks.")]
    at: Annotated[Instant, Field(description="Time of the order.")]
    by: Annotated[str, Field(description="A loop or a person.")]
    now: Annotated[int | None, Field(description="Current tasks.")]
    since: Annotated[Instant | None, Field(description="When it was first observed to have them.")]
    state: Annotated[
        Annotated[str, one_of(("pending", "reached", "missed", "undone"))],
        Field(
            description="missed: it never had them; undone: something else set others. Loops hold for both."
        ),
    ]
    waiting_since: Instant | None


class PoolSamplesRow(ApiAnswer):
    """Completions of an operator's pool while all of its tasks had work, at its present size."""

    since: Annotated[Instant, Field(description="When this was first counted.")]
    seq: int | None
    recent_seconds: Annotated[
        list[float], Field(description="Times between completions; the newest is number seq.")
    ]
    full_seconds: Annotated[Seconds | None, Field(description="How long all tasks have had work since then.")]
    per_second: PerSecond | None


class UnservedQueueRow(ApiAnswer):
    """A queue of a plant without a consumer."""

    waiting: Annotated[int, Field(description="Waiting tasks.")]
    seconds: Annotated[Seconds, Field(description="Time without a consumer, s.")]


class SnapshotPlant(ApiAnswer):
    """A registered plant in the snapshot; most views omit its topology."""

    kind: str
    state: str
    age_seconds: Seconds | None
    error: str | None
    tasks: int | None
    in_per_second: PerSecond | None
    latency_seconds: Annotated[Seconds | None, Field(description="Latency of its slowest path, s.")]
    steered_by: PlantHolder | None
    silent_seconds: NotRequired[
        Annotated[Seconds, Field(description="Since its last observation, or first request, s.")]
    ]
    topology: NotRequired[PlantTopology | None]
    sections: NotRequired[list[PlantSection]]
    groups: NotRequired[dict[str, ConsumerGroup]]
    sensors: NotRequired[dict[str, SensorStatus]]
    revisions: NotRequired[
        Annotated[dict[str, str], Field(description="The rolled out revision of each part.")]
    ]
    proofs: NotRequired[dict[str, ProofStatus]]
    set_to: NotRequired[
        Annotated[dict[str, int], Field(description="Target tasks of the plant itself, if known.")]
    ]
    lives: NotRequired[Annotated[dict[str, float], Field(description="Start of each operator, Unix time.")]]
    completions: NotRequired[dict[str, PoolSamplesRow]]
    missed_workers: NotRequired[
        Annotated[dict[str, float], Field(description="Time since each one's last answer, s.")]
    ]
    unserved_queues: NotRequired[dict[str, UnservedQueueRow]]
    orders: NotRequired[dict[str, PlantOrderRow]]


class TaskChannel(ApiAnswer):
    """A channel between two tasks."""

    source: str
    target: str
    latency: Annotated[float | None, Field(description="ms.")]
    batching: Annotated[float | None, Field(description="Part of it in the sender's buffer, ms.")]


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


class PlantReleased(RootModel[bool]):
    """false: the caller did not hold the plant."""


class PlantRow(ApiAnswer):
    """The address of a plant, and its last observation."""

    name: str
    kind: Annotated[str, one_of(tuple(kinds()))]
    url: str
    secret_environment: Annotated[str, Field(description="Variable with its token.")]
    options: dict[str, str]
    created_at: datetime
    digest: Annotated[
        str, Field(description="Digest of its registration: a change that names an older one is rejected.")
    ]
    seen: SnapshotPlant | None
    left: NotRequired[
        Annotated[str, Field(description="What Weir may still hold at its previous address, and what to do.")]
    ]
    advising: NotRequired[
        Annotated[list[str], Field(description="Existing loops of that name, which advise again.")]
    ]


class PlantList(ApiAnswer):
    plants: list[PlantRow]


class PlantRemoved(ApiAnswer):
    removed: str
    left: NotRequired[Annotated[str, Field(description="What Weir may still hold there, and what to do.")]]


class TasksByHand(ApiAnswer):
    """Tasks that were set by hand."""

    plant: str
    operator: str
    tasks: int
    until: Annotated[Instant, Field(description="Loops hold until then, Unix time.")]


class HandReleased(ApiAnswer):
    plant: str
    released: bool


class PlantResumed(ApiAnswer):
    plant: str
    forgotten: Annotated[int, Field(description="Forgotten orders.")]


class FoundPart(ApiAnswer):
    """A part of an inspected plant."""

    name: str
    kind: str
    tasks: int | None
    minimum: int | None
    maximum: int | None
    fixed: Annotated[str | None, Field(description="Why its tasks can't be set; null: they can.")]


class PlantInspected(ApiAnswer):
    """The result of inspecting an address."""

    kind: str
    sentences: Annotated[list[str], Field(description="All results in words.")]
    what: str
    name: Annotated[str, Field(description="Its own name; empty: none.")]
    said: list[str]
    parts: list[FoundPart]
    needs: Annotated[list[str], Field(description="What it would need so that Weir can do more there.")]
    choices: Annotated[dict[str, list[str]], Field(description="Option → its possible values there.")]


class InterventionKindRow(ApiAnswer):
    """An available intervention."""

    name: str
    title: str
    subject: Annotated[str, Field(description="The target.")]
    value: Annotated[str, Field(description="The additional argument; empty: none.")]
    lasting: Annotated[bool, Field(description="Whether it is in force until it is undone.")]


class InterventionRow(ApiAnswer):
    """An intervention in force."""

    kind: str
    subject: str
    value: str
    before: Annotated[str, Field(description="The previous value, as its adapter wrote it.")]
    by: str
    until: Instant
    error: Annotated[str, Field(description="Why the last undo failed; empty: it did not.")]
    tried_at: Instant | None


class PlantInterventions(ApiAnswer):
    interventions: list[InterventionKindRow]
    in_force: Annotated[list[InterventionRow], Field(description="The first to end first.")]


class InterventionDone(ApiAnswer):
    plant: str
    kind: str
    subject: str
    in_force: bool
