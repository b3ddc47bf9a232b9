"""Answers about plants: the registered ones, and a plant's operators and tasks (the control API)."""

from datetime import datetime
from typing import Annotated, NotRequired

from pydantic import Field, RootModel

from console.api.answer.schema import ApiAnswer, Instant, PerSecond, Seconds, one_of
from workers.plants.foreign.adapters import kinds


class TaskMeasures(ApiAnswer):
    """Measurements of a task; null: unknown. Counts refer to the plant's window."""

    latency_seconds: Annotated[
        Seconds | None, Field(description="From an event's being taken to its being given on, s.")
    ]
    latency_variance: Annotated[float | None, Field(description="s².")]
    service_seconds: Annotated[Seconds | None, Field(description="Between the takings of two events, s.")]
    service_variance: Annotated[float | None, Field(description="s².")]
    arrival_interval_seconds: Seconds | None
    arrival_interval_variance: Annotated[float | None, Field(description="s².")]
    utilisation: Annotated[float | None, Field(description="A share.")]
    inputs: Annotated[float | None, Field(description="Events that came to it.")]
    inputs_variance: Annotated[float | None, Field(description="Events².")]
    executions: Annotated[float | None, Field(description="Events that it worked.")]
    executions_variance: Annotated[float | None, Field(description="Events².")]
    outputs: Annotated[float | None, Field(description="Events that it gave on.")]
    outputs_variance: Annotated[float | None, Field(description="Events².")]


class OperatorTopology(ApiAnswer):
    """An operator of a plant and the measurements of its tasks."""

    kind: Annotated[
        Annotated[str, one_of(("source", "operator"))], Field(description="A source only brings events in.")
    ]
    parallelism: Annotated[int, Field(description="Tasks now; 0 where that is not known.")]
    unknown_tasks: NotRequired[
        Annotated[str | None, Field(description="Why the number of tasks is not known; absent: it is.")]
    ]
    minimum: Annotated[int, Field(description="Tasks that may be set.")]
    maximum: Annotated[int, Field(description="Tasks that may be set.")]
    fixed: Annotated[str | None, Field(description="Why its tasks can't be set; null: they can.")]
    failed: Annotated[float | None, Field(description="Of a source: events whose work failed in the window.")]
    acked: Annotated[
        float | None, Field(description="Of a source: events worked to their end in the window.")
    ]
    waiting: NotRequired[
        Annotated[float | None, Field(description="Events in front of it now; null: not counted.")]
    ]
    tasks: Annotated[list[TaskMeasures], Field(description="From the first.")]


class OperatorLink(ApiAnswer):
    source: Annotated[str, Field(description="The operator that gives.")]
    target: Annotated[str, Field(description="The operator that takes.")]
    latency_seconds: Annotated[Seconds | None, Field(description="From being given to being taken, s.")]
    batching_seconds: Annotated[Seconds | None, Field(description="Of it, in the giver's buffer, s.")]


class PlantTopology(ApiAnswer):
    """A plant's operators and links, measured at one time."""

    plant: str
    at: Instant
    window_seconds: Annotated[Seconds, Field(description="Over which counts are, s.")]
    holder: Annotated[str | None, Field(description="Who steers it besides whoever asks; null: nobody.")]
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
    rows: Annotated[list[list[str | float | None]], Field(description="A value a column; null: not known.")]
    empty: Annotated[str, Field(description="What stands there without rows.")]


class PartitionLag(ApiAnswer):
    """One partition as a consumer group reads it."""

    topic: str
    partition: int
    committed: Annotated[int | None, Field(description="The offset of the group's next event.")]
    end: Annotated[int | None, Field(description="The offset of the next event to be appended.")]
    lag_events: Annotated[int | None, Field(description="null: it does not count, `said` says why.")]
    lag_seconds: Annotated[Seconds | None, Field(description="The age of the group's next event, s.")]
    at_least: Annotated[bool, Field(description="Whether it may be older.")]
    expired_events: Annotated[
        int, Field(description="Events that retention took before the group read them.")
    ]
    member: Annotated[str, Field(description="Who reads it.")]
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
    lag_events: Annotated[int | None, Field(description="Of all partitions that count.")]
    lag_seconds: Annotated[Seconds | None, Field(description="Of the partition that is furthest behind, s.")]
    at_least: Annotated[bool, Field(description="Whether it may be more.")]
    trend: Annotated[str | None, Field(description="rising, falling or steady, of the lag in events.")]
    in_per_second: PerSecond | None
    out_per_second: PerSecond | None
    clearing_seconds: Annotated[
        Seconds | None, Field(description="Until nothing waits, at the present rates, s.")
    ]
    expired_events: int
    partition_count: int
    partitions: Annotated[list[PartitionLag], Field(description="Those that are furthest behind.")]


class SensorStatus(ApiAnswer):
    """A number that a plant's declaration names."""

    value: Annotated[
        float | None, Field(description="null: not known. Beside an error it can't be relied on.")
    ]
    silent_seconds: Annotated[Seconds, Field(description="Since it was known last, s.")]
    unit: str
    title: str
    error: str | None


class ProofStatus(ApiAnswer):
    """Evidence that an order took effect."""

    sensor: str
    value: Annotated[float | None, Field(description="What it says now; null: not known.")]
    within_seconds: Annotated[Seconds, Field(description="By then it must say what was ordered, s.")]


class PlantOrderRow(ApiAnswer):
    """The last order to an operator from here, and its current value."""

    tasks: Annotated[int, Field(description="That were ordered.")]
    at: Annotated[Instant, Field(description="When they were.")]
    by: Annotated[str, Field(description="A loop or a person.")]
    now: Annotated[int | None, Field(description="Tasks that it has.")]
    since: Annotated[Instant | None, Field(description="When it was first seen to have them.")]
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
        list[float], Field(description="Between completions; the newest is number seq.")
    ]
    full_seconds: Annotated[Seconds | None, Field(description="So long all tasks had work since then.")]
    per_second: PerSecond | None


class UnservedQueueRow(ApiAnswer):
    """A queue of a plant without a consumer."""

    waiting: Annotated[int, Field(description="Tasks that wait in it.")]
    seconds: Annotated[Seconds, Field(description="For how long nobody has taken from it, s.")]


class SnapshotPlant(ApiAnswer):
    """A registered plant in the snapshot; most views omit its topology."""

    kind: str
    state: str
    age_seconds: Seconds | None
    error: str | None
    tasks: int | None
    in_per_second: PerSecond | None
    latency_seconds: Annotated[Seconds | None, Field(description="Of its slowest path, s.")]
    steered_by: PlantHolder | None
    silent_seconds: NotRequired[
        Annotated[Seconds, Field(description="Since it was observed last, or first asked, s.")]
    ]
    topology: NotRequired[PlantTopology | None]
    sections: NotRequired[list[PlantSection]]
    groups: NotRequired[dict[str, ConsumerGroup]]
    sensors: NotRequired[dict[str, SensorStatus]]
    revisions: NotRequired[Annotated[dict[str, str], Field(description="What is rolled out of each part.")]]
    proofs: NotRequired[dict[str, ProofStatus]]
    set_to: NotRequired[
        Annotated[dict[str, int], Field(description="Tasks that the plant itself aims at, where it says so.")]
    ]
    lives: NotRequired[
        Annotated[dict[str, float], Field(description="Since when each operator is at work, s since 1970.")]
    ]
    completions: NotRequired[dict[str, PoolSamplesRow]]
    missed_workers: NotRequired[
        Annotated[dict[str, float], Field(description="For how long each has not answered, s.")]
    ]
    unserved_queues: NotRequired[dict[str, UnservedQueueRow]]
    orders: NotRequired[dict[str, PlantOrderRow]]


class TaskChannel(ApiAnswer):
    """A channel between two tasks."""

    source: str
    target: str
    latency: Annotated[float | None, Field(description="ms.")]
    batching: Annotated[float | None, Field(description="Of it, in the giver's buffer, ms.")]


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
    secret_environment: Annotated[str, Field(description="The variable that holds its token.")]
    options: dict[str, str]
    created_at: datetime
    digest: Annotated[
        str, Field(description="Of how it is reached: a change that names an older one is refused.")
    ]
    seen: SnapshotPlant | None
    left: NotRequired[
        Annotated[str, Field(description="What Weir may still hold where it was until now, and what to do.")]
    ]
    advising: NotRequired[
        Annotated[list[str], Field(description="Loops of that name that were there, and advise again.")]
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
    until: Annotated[Instant, Field(description="Loops hold until then, in seconds since 1970.")]


class HandReleased(ApiAnswer):
    plant: str
    released: bool


class PlantResumed(ApiAnswer):
    plant: str
    forgotten: Annotated[int, Field(description="Orders that count no longer.")]


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
    sentences: Annotated[list[str], Field(description="All of it in words.")]
    what: str
    name: Annotated[str, Field(description="What it calls itself; empty: nothing.")]
    said: list[str]
    parts: list[FoundPart]
    needs: Annotated[list[str], Field(description="What it would need so that Weir can do more there.")]
    choices: Annotated[dict[str, list[str]], Field(description="Option → what it could be there.")]


class InterventionKindRow(ApiAnswer):
    """An available intervention."""

    name: str
    title: str
    subject: Annotated[str, Field(description="On what.")]
    value: Annotated[str, Field(description="What it takes besides; empty: nothing.")]
    lasting: Annotated[bool, Field(description="Whether it is in force until it is undone.")]


class InterventionRow(ApiAnswer):
    """An intervention in force."""

    kind: str
    subject: str
    value: str
    before: Annotated[str, Field(description="What it goes back to, as its adapter wrote it.")]
    by: str
    until: Instant
    error: Annotated[
        str, Field(description="Why it could not be undone when that was tried last; empty: it was not.")
    ]
    tried_at: Instant | None


class PlantInterventions(ApiAnswer):
    interventions: list[InterventionKindRow]
    in_force: Annotated[list[InterventionRow], Field(description="The first to end first.")]


class InterventionDone(ApiAnswer):
    plant: str
    kind: str
    subject: str
    in_force: bool
