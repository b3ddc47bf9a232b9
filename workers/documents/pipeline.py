"""What the pipeline says of itself (`weir:pipeline`), and the snapshot of it. What the figures mean
is said in `workers.pipeline.status.status`.
"""

from msgspec import field

from queues.stored_document import StoredDocument
from workers.documents.controls import ControlValues

# States of the pipeline's process and of its applications.
STATES = ("starting", "running", "stalled", "stopping", "stopped", "failed", "offline")
STARTING, RUNNING, STALLED, STOPPING, STOPPED, FAILED, NOT_REPORTING = STATES
UNHEARD = (NOT_REPORTING, None)  # it does not report, or has never done so
AT_WORK = (RUNNING, STALLED)  # the process is there
OUTDATED = (STALLED, FAILED, NOT_REPORTING)  # its figures are of when it last worked
Measures = dict[str, float | None]  # controllers.parallelism.measured_topology.MEASURES of one task


class RuleStatus(StoredDocument, frozen=True, kw_only=True):
    """Events/s that come to a rule, and that it lets through."""

    name: str
    in_per_second: float = field(name="in", default=0.0)
    out_per_second: float = field(name="out", default=0.0)


class RecallEstimate(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The share of matches that is found while events are shed, and its interval
    (`shedding.recall`).
    """

    estimate: float
    low: float
    high: float | None = None
    matches: int = 0


class ControlKeys(StoredDocument, frozen=True, kw_only=True):
    """Of the keys of which nothing is shed: events/s by type, and what came of them."""

    types: dict[str, float] = {}
    out_per_second: float = 0.0


class PatternCounts(StoredDocument, frozen=True, kw_only=True, gc=False):
    """matches, quiet: since ever; seconds: for one event."""

    matches: int = 0
    quiet: int = 0
    seconds: float | None = None


class PatternStatus(StoredDocument, frozen=True, kw_only=True):
    """types: events/s it was given, by type; shed_per_second likewise, what it was not given.
    partnerless_per_second: of those it was given, events that could add to no match.
    forgotten_bytes_per_second: of open matches, for which there was no room. expression: as one writes it.
    recall: None while nothing is known.
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
    """share: of the application's events. response_seconds: the mean of the window, None without
    any; response_error_seconds: the standard error of that mean, None with fewer than two.
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
    """key: what it brings events together by. tasks: that worked last; parallelism: that it has.
    seconds, overhead_seconds: for one event, in all and beside its patterns. work: one a task.
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
    """The room between the tiers."""

    capacity_bytes: int | None = None
    used_bytes: int = 0
    free_bytes: int | None = None
    bytes_per_event: float = 0.0


class CombinerStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """waits_for: the replica whose results are missing."""

    waits_for: str | None = None
    held_results: int | None = None


class MonitoredStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """What a criterion follows: the quantile of a column, over the events of a window."""

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
    """count: starts after the first, since ever. tries: failures in a row since anything was worked.
    failed_at, next_try_at: None while it does not fail, or nothing tries again by itself. last_error:
    what failed last, at last_error_at. Times in seconds since 1970.
    """

    count: int = 0
    tries: int = 0
    failed_at: float | None = None
    next_try_at: float | None = None
    last_error: str | None = None
    last_error_at: float | None = None


class ApplicationStatus(StoredDocument, frozen=True, kw_only=True):
    """One application. sinks: type → queues. queues: those it reads."""

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
    """All applications together: the worst state, sums, the greatest batch and lag. ahead_seconds: by so much
    the clock of the process' host is ahead of the control server's.
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
    """What the process writes. at: seconds since 1970, by its clock. carried: what the process before said of
    applications that have not begun in this one yet: they count on from there.
    """

    at: float
    carried: dict[str, ApplicationStatus] = {}


class PipelineStatus(PipelineFigures, frozen=True, kw_only=True):
    """The same in the snapshot. age_seconds: since it was written; None: never."""

    age_seconds: float | None = None


class PipelineOrder(StoredDocument, frozen=True, kw_only=True):
    """What a person wants of an application (`weir:pipeline:orders`): that it stands still, or that it
    is started anew each time `restart` is another number. by, reason: of the newest; at: s since 1970.
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
    """A declared application as the pipeline has it (`weir:pipeline:at-work`). version: 0 came with the
    process. refused: why a wanted version is not taken.
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
    """What a complex event says of its match. first_time: of its first event, seconds since 1970."""

    pattern: str = ""
    severity: str = ""
    first_time: float | None = None
    events: list[ContributingEvent] = []


class ComplexEvent(StoredDocument, frozen=True, kw_only=True):
    """A match as an event (`weir:pipeline:recent:{app}`). time: of its last event, ISO 8601; source: the
    key that its events have in common; key: the pattern.
    """

    id: str
    time: str
    type: str
    source: str | None = None
    key: str | None = None
    value: float | None = None
    attributes: MatchAttributes = MatchAttributes()
