"""Queues, their containers, and their producers, in the snapshot."""

from typing import Annotated, Literal

from common.stored_document import (
    Bytes,
    Events,
    Instant,
    PerSecond,
    Points,
    Seconds,
    Share,
    StoredDocument,
    describe,
    describe_metric,
)
from controllers.retries.circuit import CLOSED, LIMITED, OPEN
from queues.durability import MEMORY
from queues.durability import NAMES as DURABILITY_NAMES
from queues.durability import SUMMARY as DURABILITY_HELP

Trend = Literal["rising", "falling", "steady"]


class ContainerStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """A queue's segment on one node."""

    points: Annotated[Points, describe("Points, out of the queue's 1,000; 0 while it drains.", recorded=True)] = 0
    waiting_events: Events | None = None
    waiting_bytes: Bytes | None = None
    in_per_second: PerSecond | None = None
    out_per_second: PerSecond | None = None
    dead_per_second: PerSecond | None = None
    load: Annotated[float | None, describe("Share of the node's capacity.")] = None
    server_time_share: Annotated[Share | None, describe("Share of one core of the node's server.")] = None
    oldest_seconds: Annotated[Seconds | None, describe("Wait of the oldest event, s.", recorded=True)] = None
    # Totals by producers and workers, without transfers between nodes.
    inserted_events: Annotated[Events | None, describe("Events inserted", metric="counter")] = None
    removed_events: Annotated[Events | None, describe("Events removed", metric="counter")] = None
    leaving_blocks: Annotated[int, describe("Number of blocks that are being transferred to another node.")] = 0
    leaving_letters: Annotated[int, describe("Number of dead letters that are being transferred to another node.")] = 0
    dead_letters: int | None = None
    dead_error: Annotated[str, describe("The error of the newest dead letter.")] = ""
    retry_blocks: int | None = None
    waiting_to_run: Annotated[
        int | None, describe("Number of started workers that wait for a process.", recorded=True)
    ] = None
    workers_started: Annotated[int | None, describe("Total number of started workers.")] = None
    workers_busy: Annotated[int | None, describe("Number of workers that process its events.", recorded=True)] = None
    trouble: Annotated[str | None, describe("Why its last worker ended early.")] = None


class PauseStatus(StoredDocument, frozen=True, kw_only=True):
    """A temporary stop by a person."""

    part: Annotated[str, describe("intake or consumption (of a queue), or work (of a worker host).")]
    override: Annotated[int, describe("ID of the override.")]
    since: Instant | None = None
    until: Instant | None = None
    by: str = ""
    reason: str = ""


class CircuitHoldStatus(StoredDocument, frozen=True, kw_only=True):
    """A circuit that a person holds open or closed for one queue."""

    circuit: Annotated[
        str,
        describe("open (no calls) or closed (all first attempts; retries need the budget).", values=("open", "closed")),
    ]
    override: Annotated[int, describe("ID of the override.")]
    since: Instant | None = None
    until: Instant | None = None
    by: str = ""
    reason: str = ""


class CatchUp(StoredDocument, frozen=True, kw_only=True):
    """A queue works off what waited during a pause or an outage that has ended."""

    after: Annotated[str, describe("What has ended, such as: the pause of its consumption by ada.")]
    since: Instant
    least_events: Annotated[Events, describe("The smallest backlog since then.")] = 0
    least_at: Annotated[Instant, describe("When the backlog reached this size.")] = 0.0


class SlotHolder(StoredDocument, frozen=True, kw_only=True):
    """The queue whose workers hold the worker slots, and the queues that wait for a slot because of it."""

    queue: str
    crowded: Annotated[dict[str, str], describe("For each waiting queue, the queue that it waits for.")] = {}
    holds_all: Annotated[bool, describe("Whether the queue holds nearly all slots, and not only most of them.")] = True
    active: Annotated[
        bool, describe("Whether the queue holds the slots now; if not, the other queues still catch up.")
    ] = True


class DestinationStatus(StoredDocument, frozen=True, kw_only=True):
    """A destination that handlers of queues or retried tasks call, and the limits on these calls while it fails."""

    circuit: Annotated[
        str,
        describe(
            "closed, limited (retries wait for the budget), or open (probes only).", values=(CLOSED, LIMITED, OPEN)
        ),
    ] = CLOSED
    since: Annotated[Instant | None, describe("When it stopped being healthy; null: it is healthy.")] = None
    failing_share: Annotated[Share, describe("Share of the recent calls that failed.")] = 0.0
    calls: Annotated[float, describe("Recent calls, weighted; the failing share is computed from them.")] = 0.0
    retries: Annotated[float, describe("Retries that the budget allows now.")] = 0.0
    at: Annotated[Instant | None, describe("When a call was last reported.")] = None
    error: Annotated[str, describe("The last failure.")] = ""
    queues: Annotated[list[str], describe("Queues whose handlers call it.")] = []
    retry_plans: Annotated[list[int], describe("Active retry plans of attached plants whose tasks call it.")] = []


class QueueStatus(StoredDocument, frozen=True, kw_only=True):
    """Live figures of a queue, of all containers together."""

    kind: Annotated[Annotated[str, describe(values=("jobs", "pipeline"))] | None, describe("jobs or pipeline.")] = None
    handler: Annotated[str | None, describe("Handler of a jobs queue.")] = None
    sink: Annotated[str | None, describe("Destination of the events of a jobs queue.")] = None
    destination: Annotated[str | None, describe("What the handler calls, a key of `destinations`.")] = None
    circuit_hold: Annotated[
        CircuitHoldStatus | None, describe("Set while a person holds the circuit of the destination open or closed.")
    ] = None
    priority: int | None = None
    minimum_containers: int = 1
    requirements: Annotated[list[str], describe("Capabilities that worker hosts need.")] = []
    durability: Annotated[str, describe(DURABILITY_HELP, values=DURABILITY_NAMES)] = MEMORY
    ordinary_weight: Annotated[
        float | None, describe("Weight of the ordinary keys, in shares of one key; null: the queue is not fair.")
    ] = None
    active_keys: Annotated[int | None, describe("Number of keys of a fair queue, estimated from samples.")] = None
    in_per_second: Annotated[PerSecond | None, describe_metric("Events published per second")] = None
    out_per_second: Annotated[PerSecond | None, describe_metric("Events processed per second")] = None
    waiting_events: Annotated[Events | None, describe_metric("Events waiting")] = None
    waiting_bytes: Annotated[Bytes | None, describe("Bytes waiting", metric="gauge")] = None
    # 0 while no event waits; None while unknown.
    wait_seconds: Annotated[Seconds | None, describe_metric("Wait of the oldest event in seconds")] = None
    clearing_seconds: Annotated[
        Seconds | None, describe("Time to process the backlog at the current rate, s; null: no event leaves.")
    ] = None
    trend: Annotated[Trend | None, describe("Trend of the waiting events over half a minute.")] = None
    # As the nodes reported it.
    oldest_seconds: Annotated[Seconds | None, describe("Age of the oldest waiting event", metric="gauge")] = None
    latency_p95_seconds: Annotated[
        Seconds | None, describe_metric("95th percentile of the time from publish to acknowledgment")
    ] = None
    dead_letters: Annotated[int | None, describe_metric("Dead letter events")] = None
    retry_blocks: Annotated[int | None, describe("Failed blocks waiting for a retry", metric="gauge")] = None
    workers_at_once: Annotated[float | None, describe("Mean number of workers.", recorded=True)] = None
    service_seconds: Annotated[
        Seconds | None, describe("Processing time of one event by one worker, s.", recorded=True)
    ] = None
    usual_service_seconds: Annotated[
        Seconds | None, describe("Usual processing time of one event, s; after a slowdown, the time before it.")
    ] = None
    usual_in_per_second: Annotated[PerSecond | None, describe("Usual arrivals per second, without bursts.")] = None
    burst_at: Annotated[Instant | None, describe("When more than twice the usual events last arrived.")] = None
    handler_changed_at: Annotated[Instant | None, describe("When the handler or its options last changed.")] = None
    catching_up: Annotated[CatchUp | None, describe("Set while a backlog that has a known, ended cause falls.")] = None
    pauses: Annotated[list[PauseStatus], describe("Active pauses of its intake or consumption.")] = []
    containers: Annotated[dict[str, ContainerStatus], describe("Keyed by node.")] = {}


class EventSample(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The composition of events: events by value, only the most frequent values (`queues.events.block`)."""

    events: Annotated[int, describe("Number of sampled events.")] = 0
    keys: Annotated[int | None, describe("Estimated number of different keys.")] = None
    type: dict[str, int] = {}
    key: dict[str, int] = {}
    source: dict[str, int] = {}


class ReportedProducer(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The totals that a producer has published to one queue (`weir:producers`)."""

    at: Annotated[Instant, describe("Unix time by the producer's clock.")]
    events: Events = 0
    blocks: int = 0
    rejected: Annotated[Events, describe("Number of malformed events.")] = 0
    rerouted: Annotated[Events, describe("Events sent to another node because theirs did not answer.")] = 0
    sample: Annotated[EventSample | None, describe("Sample of its latest events.")] = None


# Prefix of an application's name for the producer of its complex events.
PIPELINE_PRODUCER = "pipeline-"


class ProducerStatus(StoredDocument, frozen=True, kw_only=True):
    """A producer."""

    in_per_second: PerSecond | None = None
    age_seconds: Annotated[Seconds | None, describe("Time since the last report, s.")] = None
    queues: Annotated[dict[str, PerSecond | None], describe("Events per second by queue.")] = {}
    rejected: Annotated[Events, describe("Number of malformed events since it started.")] = 0
    rerouted: Annotated[Events, describe("Events since it started that were sent to another node.")] = 0
    samples: Annotated[
        dict[str, EventSample], describe("Samples of published events, by queue; only the busiest queues.")
    ] = {}
