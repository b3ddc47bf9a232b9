"""The pipeline's report (`weir:pipeline`), and the snapshot of it.

`workers.pipeline.status.status` explains the figures.
"""

from msgspec import field

from common.stored_document import StoredDocument
from workers.documents.controls import ControlValues

# States of the pipeline's process and of its applications.
STATES = ("starting", "running", "stalled", "stopping", "stopped", "failed", "offline")
STARTING, RUNNING, STALLED, STOPPING, STOPPED, FAILED, NOT_REPORTING = STATES
UNHEARD = (NOT_REPORTING, None)  # it does not report, or has never reported
AT_WORK = (RUNNING, STALLED)  # the process runs
OUTDATED = (STALLED, FAILED, NOT_REPORTING)  # its figures are from its last work
Measures = dict[str, float | None]  # controllers.parallelism.measured_topology.MEASURES of one task


class RuleStatus(StoredDocument, frozen=True, kw_only=True):
    """Events/s that a rule receives and passes."""

    name: str
    in_per_second: float = field(name="in", default=0.0)
    out_per_second: float = field(name="out", default=0.0)


class RecallEstimate(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The share of matches found while events are shed, and its confidence interval (`shedding.recall`)."""

    estimate: float
    low: float
    high: float | None = None
    matches: int = 0


class ControlKeys(StoredDocument, frozen=True, kw_only=True):
    """Control keys, of which nothing is shed: events/s by type, and their results."""

    types: dict[str, float] = {}
    out_per_second: float = 0.0


class PatternCounts(StoredDocument, frozen=True, kw_only=True, gc=False):
    """Counts of a pattern. matches, quiet: totals; seconds: for one event."""

    matches: int = 0
    quiet: int = 0
    seconds: float | None = None


class PatternStatus(StoredDocument, frozen=True, kw_only=True):
    """A pattern.

    types: received events/s by type; shed_per_second: withheld events/s by type. partnerless_per_second: received
    events that could add to no match. forgotten_bytes_per_second: open matches discarded for lack of space. expression:
    as in the declaration. recall: None while unknown.
    """

    operator: str = ""
    emits: str = ""
    expression: str = ""
    sheddable: bool = False
    matches: int = 0
    quiet: int = 0
    seconds: float | None = None
    types: dict[str, float] = {}
    partnerless_per_second: float = 0.0
    forgotten_bytes_per_second: float = 0.0
    out_per_second: float = 0.0
    shed_events: dict[str, int] = {}
    shed_per_second: dict[str, float] = {}
    shed_share: float = 0.0
    spared: ControlKeys = ControlKeys()
    recall: RecallEstimate | None = None


class ReplicaStatus(StoredDocument, frozen=True, kw_only=True):
    """A replica.

    share: of the application's events. response_seconds: the mean of the window, None without any;
    response_error_seconds: its standard error, None with fewer than two.
    """

    share: float = 0.0
    in_per_second: float = 0.0
    kept_per_second: float = 0.0
    utilisation: float = 0.0
    batch_seconds: float | None = None
    response_seconds: float | None = None
    response_error_seconds: float | None = None
    work: Measures = {}


class OperatorStatus(StoredDocument, frozen=True, kw_only=True):
    """An operator.

    key: the attribute by which it groups events. tasks: those that worked last; parallelism: its number of tasks.
    seconds, overhead_seconds: for one event, in all and outside its patterns. work: one row per task.
    """

    key: str | None = None
    level: int = 0
    reads_source: bool = False
    in_per_second: float = 0.0
    out_per_second: float = 0.0
    tasks: int | None = None
    parallelism: int = 1
    utilisation: float | None = None
    seconds: float | None = None
    overhead_seconds: float | None = None
    shed_share: float = 0.0
    late_per_second: float = 0.0
    patterns: list[str] = []
    work: list[Measures] = []


class ResultQueueStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The result queue between the tiers."""

    capacity_bytes: int | None = None
    used_bytes: int = 0
    free_bytes: int | None = None
    bytes_per_event: float = 0.0


class CombinerStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The combiner. waits_for: the replica whose results are missing."""

    waits_for: str | None = None
    held_results: int | None = None


class MonitoredStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The value that a criterion follows: the quantile of a column over the events of a window."""

    column: str = ""
    type: str | None = None
    quantile: float = 0.0
    window_seconds: float = 0.0
    events: int = 0
    value: float | None = None


class EdgeStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """Complex events of a type, from the operator that emits them to one that reads them."""

    source: str
    target: str
    type: str


class RestartStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """Restarts.

    count: total starts after the first. tries: failures in a row without work in between. failed_at, next_try_at: None
    while it does not fail, or is not retried. last_error: the last failure, at last_error_at. Times in seconds since
    1970.
    """

    count: int = 0
    tries: int = 0
    failed_at: float | None = None
    next_try_at: float | None = None
    last_error: str | None = None
    last_error_at: float | None = None


class ApplicationStatus(StoredDocument, frozen=True, kw_only=True):
    """One application. sinks: type → queues. queues: its input queues."""

    state: str = STARTING
    hindrance: str | None = None
    error: str | None = None
    restarts: RestartStatus = RestartStatus()
    queues: list[str] = []
    sinks: dict[str, list[str]] = {}
    batch: int | None = None
    in_per_second: float | None = None
    kept_per_second: float | None = None
    alerts_per_second: float | None = None
    rules: list[RuleStatus] = []
    batch_seconds: float | None = None
    batch_overhead_seconds: float | None = None
    batch_overhead_cv2: float | None = None
    latency_p95_seconds: float | None = None
    watermark_lag_seconds: float | None = None
    waiting_events: int | None = None
    patterns: dict[str, PatternStatus] = {}
    offered_per_second: float | None = None
    shed_per_second: float | None = None
    shed_share: float | None = None
    shed_events: int = 0
    late_events: int = 0
    outbox: dict[str, int] = {}
    outbox_full: bool = False
    complex_events: int = 0
    skipped_nodes: list[str] = []
    controls: ControlValues = ControlValues()
    admitted_events: int | None = None
    in_flight_events: int = 0
    result_queue: ResultQueueStatus = ResultQueueStatus()
    replicas: dict[str, ReplicaStatus] = {}
    combiner: CombinerStatus = CombinerStatus()
    operators: dict[str, OperatorStatus] = {}
    monitored: dict[str, MonitoredStatus] = {}
    edges: list[EdgeStatus] = []


class PipelineFigures(StoredDocument, frozen=True, kw_only=True):
    """All applications together: the worst state, sums, and the largest batch and lag.

    ahead_seconds: how far the clock of the process' host is ahead of the control server's.
    """

    state: str | None = None
    error: str | None = None
    hindrance: str | None = None
    batch: int | None = None
    in_per_second: float | None = None
    kept_per_second: float | None = None
    alerts_per_second: float | None = None
    batch_seconds: float | None = None
    watermark_lag_seconds: float | None = None
    waiting_events: int | None = None
    offered_per_second: float | None = None
    shed_per_second: float | None = None
    result_free_bytes: int | None = None
    late_events: int = 0
    outbox: dict[str, int] = {}
    shed_events: int = 0
    patterns: dict[str, PatternCounts] = {}
    rules: list[RuleStatus] = []
    skipped_nodes: list[str] = []
    ahead_seconds: float | None = None
    applications: dict[str, ApplicationStatus] = {}


class PipelineReport(PipelineFigures, frozen=True, kw_only=True):
    """The report that the process writes.

    at: seconds since 1970, by its clock. carried: the previous process' report of applications that have not started in
    this one yet, whose counts continue from there.
    """

    at: float
    carried: dict[str, ApplicationStatus] = {}


class PipelineStatus(PipelineFigures, frozen=True, kw_only=True):
    """The report in the snapshot. age_seconds: since it was written; None: never."""

    age_seconds: float | None = None


class PipelineOrder(StoredDocument, frozen=True, kw_only=True):
    """A person's order for an application: to stop, or to restart each time `restart` changes.

    It is stored in `weir:pipeline:orders`. by, reason: of the newest order; at: s since 1970.
    """

    stopped: bool = False
    restart: int = 0
    by: str = ""
    reason: str = ""
    at: float | None = None


class LogLine(StoredDocument, frozen=True, kw_only=True, gc=False):
    """A line of the process' log. at: seconds since 1970."""

    at: float
    level: str
    text: str


class PipelineLog(StoredDocument, frozen=True, kw_only=True):
    """The newest lines of the process' log (`weir:pipeline:log`), the oldest first."""

    lines: list[LogLine] = []


class ApplicationAtWork(StoredDocument, frozen=True, kw_only=True):
    """A declared application as the pipeline runs it (`weir:pipeline:at-work`).

    version: 0 is shipped with the process. refused: why a requested version was rejected.
    """

    name: str
    version: int
    text: str
    refused: str | None = None


class ContributingEvent(StoredDocument, frozen=True, kw_only=True, gc=False):
    """An event of a match. time_us: µs since 1970."""

    time_us: int
    id: str | None = None
    type: str | None = None
    value: float | None = None
    source: str | None = None


class MatchAttributes(StoredDocument, frozen=True, kw_only=True):
    """A complex event's description of its match. first_time: of its first event, seconds since 1970."""

    pattern: str = ""
    severity: str = ""
    first_time: float | None = None
    events: list[ContributingEvent] = []


class ComplexEvent(StoredDocument, frozen=True, kw_only=True):
    """A match as an event (`weir:pipeline:recent:{app}`).

    time: of its last event, ISO 8601; source: the common key of its events; key: the pattern.
    """

    id: str
    time: str
    type: str
    source: str | None = None
    key: str | None = None
    value: float | None = None
    attributes: MatchAttributes = MatchAttributes()
