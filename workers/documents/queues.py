"""Queues, their containers, and their producers, in the snapshot."""

from typing import Literal

from common.stored_document import StoredDocument

Trend = Literal["rising", "falling", "steady"]


class ContainerStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """A queue's segment on one node.

    points: of 1000; 0 while it drains. leaving_blocks: marked for a transfer. inserted_events, removed_events: totals
    by producers and workers, without transfers between nodes. load: its share of the node's capacity.
    server_time_share: of one core of the node's server. waiting_to_run, workers_busy: workers submitted and not
    started, and busy workers; workers_started: total.
    """

    points: int = 0
    waiting_events: int | None = None
    waiting_bytes: int | None = None
    in_per_second: float | None = None
    out_per_second: float | None = None
    dead_per_second: float | None = None
    load: float | None = None
    server_time_share: float | None = None
    oldest_seconds: float | None = None
    inserted_events: int | None = None
    removed_events: int | None = None
    leaving_blocks: int = 0
    dead_letters: int | None = None
    retry_blocks: int | None = None
    waiting_to_run: int | None = None
    workers_started: int | None = None
    workers_busy: int | None = None


class PauseStatus(StoredDocument, frozen=True, kw_only=True):
    """A pause or drain by a person.

    part: intake or consumption of a queue, work of a worker host. since, until: seconds since 1970. override: its
    number.
    """

    part: str
    override: int
    since: float | None = None
    until: float | None = None
    by: str = ""
    reason: str = ""


class QueueStatus(StoredDocument, frozen=True, kw_only=True):
    """A queue.

    kind: jobs or pipeline. handler, sink: of a jobs queue, its handler and the destination of its events. Figures are
    of all containers together. wait_seconds: how long the oldest event has waited; 0 while none waits, None while
    unknown. clearing_seconds: time to clear the backlog at the present rate; None while nothing leaves. oldest_seconds:
    as the nodes reported it. trend: of the backlog, over half a minute (`workers.snapshot.trend`). latency_p95_seconds:
    from publishing to acknowledgment. workers_at_once: the mean number; service_seconds: of one of them, for one event.
    `trouble`: why a worker ended early. pauses: those in force.
    """

    kind: str | None = None
    handler: str | None = None
    sink: str | None = None
    priority: int | None = None
    minimum_containers: int = 1
    in_per_second: float | None = None
    out_per_second: float | None = None
    waiting_events: int | None = None
    waiting_bytes: int | None = None
    wait_seconds: float | None = None
    clearing_seconds: float | None = None
    trend: Trend | None = None
    oldest_seconds: float | None = None
    latency_p95_seconds: float | None = None
    dead_letters: int | None = None
    retry_blocks: int | None = None
    workers_at_once: float | None = None
    service_seconds: float | None = None
    trouble: str | None = None
    pauses: list[PauseStatus] = []
    containers: dict[str, ContainerStatus] = {}


class EventSample(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The composition of events: events by value, only the most frequent values.

    See `queues.events.block`. events: the number of sampled events.
    """

    events: int = 0
    type: dict[str, int] = {}
    key: dict[str, int] = {}
    source: dict[str, int] = {}


class ReportedProducer(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The totals that a producer has published to one queue (`weir:producers`), in events and blocks.

    rejected: invalid events; rerouted: events sent to another node because theirs did not answer. at: seconds since
    1970, by the producer's clock. sample: of its latest events.
    """

    at: float
    events: int = 0
    blocks: int = 0
    rejected: int = 0
    rerouted: int = 0
    sample: EventSample | None = None


# Prefix of an application's name for the producer of its complex events.
PIPELINE_PRODUCER = "pipeline-"


class ProducerStatus(StoredDocument, frozen=True, kw_only=True):
    """A producer.

    age_seconds: since it published. queues: events/s by queue. rejected, rerouted: events since it started.
    samples: by queue, only of the busiest.
    """

    in_per_second: float | None = None
    age_seconds: float | None = None
    queues: dict[str, float | None] = {}
    rejected: int = 0
    rerouted: int = 0
    samples: dict[str, EventSample] = {}
