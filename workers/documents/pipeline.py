"""The pipeline's report (`weir:pipeline`), and the snapshot of it.

`workers.pipeline.status.status` explains the figures.
"""

from typing import Annotated

from msgspec import field

from common.stored_document import (
    Bytes,
    Events,
    Instant,
    PerSecond,
    Seconds,
    Share,
    StoredDocument,
    describe,
    describe_metric,
)
from workers.documents.controls import ControlValues

# States of the pipeline's process and of its applications.
STATES = ("starting", "running", "stalled", "stopping", "stopped", "failed", "offline")
STARTING, RUNNING, STALLED, STOPPING, STOPPED, FAILED, NOT_REPORTING = STATES
UNHEARD = (NOT_REPORTING, None)  # it does not report, or has never reported
AT_WORK = (RUNNING, STALLED)  # the process runs
OUTDATED = (STALLED, FAILED, NOT_REPORTING)  # its figures are from its last work
RULE_ENGINES = (IN_ARROW, IN_SPARK) = ("arrow", "spark")
PLACES = (IN_PROCESS, ON_SPARK) = ("process", "spark")
State = Annotated[str, describe(values=STATES)]
Measures = dict[str, float | None]  # controllers.parallelism.measured_topology.MEASURES of one task


class RuleStatus(StoredDocument, frozen=True, kw_only=True):
    """A rule's events per second."""

    name: str
    in_per_second: PerSecond = field(name="in", default=0.0)
    out_per_second: PerSecond = field(name="out", default=0.0)


class RecallEstimate(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The share of all matches that are found, estimated from the control keys (`shedding.recall`)."""

    estimate: Share
    low: Share
    high: Annotated[Share | None, describe("null: no bound.")] = None
    matches: Annotated[int, describe("Number of matches of the control keys.")] = 0


class ControlKeys(StoredDocument, frozen=True, kw_only=True):
    """Events and matches of the control keys, which are never shed."""

    types: Annotated[dict[str, PerSecond], describe("Events per second by type.")] = {}
    out_per_second: PerSecond = 0.0


KEPT_SHARES = (0.5, 0.25, 0.125, 0.0625)


class SurplusEstimate(StoredDocument, frozen=True, kw_only=True):
    """Matches that remain if fewer events of a type are kept, measured in a sample of the keys."""

    matches_per_second: Annotated[PerSecond, describe("Matches of the sample.")] = 0.0
    matches_per_window: Annotated[
        float, describe("Mean number of matches of the same key in the window of a match.")
    ] = 0.0
    kept_per_second: Annotated[
        dict[str, list[PerSecond]],
        describe("Matches that remain if 1/2, 1/4, 1/8, and 1/16 of the events of the type are kept."),
    ] = {}


class PatternCounts(StoredDocument, frozen=True, kw_only=True, gc=False):
    """Counts of a pattern, which continue over restarts."""

    matches: int = 0
    quiet: Annotated[int, describe("Number of matches in the suppression interval.")] = 0
    seconds: Annotated[Seconds | None, describe("Matching time of one event, s.")] = None


class PatternStatus(StoredDocument, frozen=True, kw_only=True):
    """A pattern of an application."""

    operator: str = ""
    emits: Annotated[str, describe("The type of its complex events.")] = ""
    expression: Annotated[str, describe("As in the declaration.")] = ""
    sheddable: bool = False
    matches: int = 0
    quiet: Annotated[int, describe("Number of matches in the suppression interval.")] = 0
    seconds: Annotated[Seconds | None, describe("Matching time of one event, s.")] = None
    types: Annotated[dict[str, PerSecond], describe("Received events per second by type.")] = {}
    partnerless_per_second: Annotated[PerSecond, describe("Events/s that could not contribute to a match.")] = 0.0
    forgotten_bytes_per_second: Annotated[
        float, describe("Bytes/s of open matches that were dropped because too many were open.")
    ] = 0.0
    out_per_second: PerSecond = 0.0
    shed_events: Annotated[dict[str, int], describe("Total events shed, by type.")] = {}
    shed_per_second: Annotated[dict[str, PerSecond], describe("Events shed per second, by type.")] = {}
    shed_share: Annotated[Share, describe(recorded=True)] = 0.0
    spared: ControlKeys = ControlKeys()
    surplus: SurplusEstimate = SurplusEstimate()
    weight: Annotated[float, describe("Value of a match at the sinks.")] = 1.0
    recall: Annotated[RecallEstimate | None, describe("null: unknown.")] = None


class ReplicaStatus(StoredDocument, frozen=True, kw_only=True):
    """One replica of the first tier."""

    share: Annotated[Share, describe("Share of the events that the dispatcher assigns to the replica.")] = 0.0
    in_per_second: PerSecond = 0.0
    kept_per_second: PerSecond = 0.0
    utilisation: Share = 0.0
    batch_seconds: Seconds | None = None
    response_seconds: Annotated[Seconds | None, describe("Response time by Little's law, s; null: unknown.")] = None
    response_error_seconds: Annotated[
        Seconds | None, describe("Standard error of the mean of finished responses, s; null: fewer than two responses.")
    ] = None
    work: Annotated[Measures, describe("Measurements of its task.")] = {}


class OperatorStatus(StoredDocument, frozen=True, kw_only=True):
    """An operator of the second tier."""

    key: Annotated[str | None, describe("The attribute by which it groups events.")] = None
    level: int = 0
    reads_source: bool = False
    in_per_second: PerSecond = 0.0
    out_per_second: PerSecond = 0.0
    tasks: Annotated[int | None, describe("Number of tasks in the newest batch.")] = None
    parallelism: Annotated[int, describe("The configured number of tasks.", recorded=True)] = 1
    utilisation: Share | None = None
    seconds: Annotated[Seconds | None, describe("Processing time of one event, s.")] = None
    overhead_seconds: Annotated[Seconds | None, describe("Time in addition to matching, s.")] = None
    shed_share: Share = 0.0
    late_per_second: PerSecond = 0.0
    patterns: list[str] = []
    work: Annotated[list[Measures], describe("Measurements of each task.")] = []


class ResultQueueStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The result queue between the tiers."""

    capacity_bytes: Bytes | None = None
    used_bytes: Bytes = 0
    free_bytes: Bytes | None = None
    bytes_per_event: float = 0.0


class CombinerStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The combiner of the replicas' results."""

    waits_for: Annotated[str | None, describe("The replica that the combiner waits for; null: none.")] = None
    held_results: int | None = None
    in_per_second: Annotated[
        PerSecond | None, describe("Admitted events per second whose results it read; null: unknown.")
    ] = None
    wait_seconds: Annotated[
        Seconds | None, describe("Mean time from a replica's result to the batch that reads it, s.")
    ] = None
    rows_per_second: Annotated[PerSecond | None, describe("Rows per second that were due in batches.")] = None


class MonitoredStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The value that a criterion follows: the quantile of a column over the events of a window."""

    column: str = ""
    type: str | None = None
    quantile: Share = 0.0
    window_seconds: Seconds = 0.0
    events: Events = 0
    value: float | None = None


class EdgeStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """Complex events of a type, from the operator that emits them to one that reads them."""

    source: str
    target: str
    type: str


class RestartStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The number of restarts of an application, and whether it fails now."""

    count: Annotated[int, describe("Total number of restarts.")] = 0
    tries: Annotated[int, describe("Number of consecutive failures without progress.")] = 0
    failed_at: Annotated[Instant | None, describe("null: not failing.")] = None
    next_try_at: Annotated[Instant | None, describe("null: no automatic retry.")] = None
    last_error: str | None = None
    last_error_at: Instant | None = None


class ApplicationStatus(StoredDocument, frozen=True, kw_only=True):
    """The status that an application reports; null: unknown."""

    state: State = STARTING
    hindrance: Annotated[str | None, describe("Why there is no progress.")] = None
    error: str | None = None
    restarts: RestartStatus = RestartStatus()
    queues: Annotated[list[str], describe("Its input queues.")] = []
    sinks: Annotated[dict[str, list[str]], describe("The queues that receive each complex event.")] = {}
    batch: int | None = None
    in_per_second: PerSecond | None = None
    kept_per_second: PerSecond | None = None
    alerts_per_second: PerSecond | None = None
    rules: list[RuleStatus] = []
    rule_engine: Annotated[str, describe("Engine that runs the rules.", values=RULE_ENGINES)] = IN_SPARK
    spark_reason: Annotated[str | None, describe("Why Spark runs the rules; null: Arrow runs them, or unknown.")] = None
    place: Annotated[
        str, describe("Where it runs: in threads of the pipeline's process, or on Spark.", values=PLACES)
    ] = ON_SPARK
    place_reason: Annotated[str, describe("Why it runs there, as a clause; empty: unknown.")] = ""
    batch_seconds: Seconds | None = None
    batch_overhead_seconds: Seconds | None = None
    batch_overhead_cv2: Annotated[
        float | None, describe("Variance of the batch overhead divided by its squared mean.")
    ] = None
    latency_p95_seconds: Annotated[Seconds | None, describe(recorded=True)] = None
    watermark_lag_seconds: Seconds | None = None
    waiting_events: Events | None = None
    patterns: dict[str, PatternStatus] = {}
    offered_per_second: PerSecond | None = None
    shed_per_second: PerSecond | None = None
    shed_share: Annotated[Share | None, describe(recorded=True)] = None
    shed_events: Events = 0
    late_events: Events = 0
    outbox: Annotated[dict[str, int], describe("Number of complex events that each queue has not accepted yet.")] = {}
    outbox_full: Annotated[bool, describe("Whether reading is paused until queues accept complex events.")] = False
    complex_events: int = 0
    same_cores: Annotated[bool, describe("Whether all replicas run on the same cores.")] = False
    skipped_nodes: list[str] = []
    controls: ControlValues = ControlValues()
    admitted_events: Events | None = None
    in_flight_events: Events = 0
    result_queue: ResultQueueStatus = ResultQueueStatus()
    replicas: dict[str, ReplicaStatus] = {}
    combiner: CombinerStatus = CombinerStatus()
    operators: dict[str, OperatorStatus] = {}
    monitored: dict[str, MonitoredStatus] = {}
    edges: list[EdgeStatus] = []


class PipelineFigures(StoredDocument, frozen=True, kw_only=True):
    """All applications together: the worst state, sums, and the largest batch and lag."""

    state: State | None = None
    error: str | None = None
    hindrance: Annotated[str | None, describe("Why there is no progress.")] = None
    batch: Annotated[int | None, describe("Number of the last batch", metric="gauge")] = None
    in_per_second: Annotated[PerSecond | None, describe_metric("Events read per second")] = None
    kept_per_second: Annotated[PerSecond | None, describe_metric("Events per second that passed the filters")] = None
    alerts_per_second: Annotated[PerSecond | None, describe_metric("Complex events per second")] = None
    batch_seconds: Annotated[Seconds | None, describe_metric("Duration of the last batch")] = None
    watermark_lag_seconds: Annotated[Seconds | None, describe_metric("Age of the watermark")] = None
    waiting_events: Annotated[Events | None, describe_metric("Events waiting")] = None
    offered_per_second: PerSecond | None = None
    shed_per_second: PerSecond | None = None
    result_free_bytes: Annotated[Bytes | None, describe(recorded=True)] = None
    late_events: Events = 0
    outbox: Annotated[dict[str, int], describe("Number of complex events that each queue has not accepted yet.")] = {}
    shed_events: Events = 0
    cores: Annotated[int | None, describe("Number of Spark's cores; null: unknown.")] = None
    patterns: dict[str, PatternCounts] = {}
    rules: list[RuleStatus] = []
    skipped_nodes: list[str] = []
    ahead_seconds: Annotated[
        Seconds | None, describe("Clock offset of its host from the control server, s; positive: ahead.")
    ] = None
    applications: dict[str, ApplicationStatus] = {}


class PipelineReport(PipelineFigures, frozen=True, kw_only=True):
    """The report that the process writes.

    carried: the previous process' report of applications that have not started in this one yet, whose counts continue
    from there.
    """

    at: Annotated[Instant, describe("Unix time by its clock.")]
    carried: dict[str, ApplicationStatus] = {}


class PipelineStatus(PipelineFigures, frozen=True, kw_only=True):
    """The report in the snapshot."""

    age_seconds: Annotated[
        Seconds | None, describe("Time since the last report, s; null: no report yet.", recorded=True)
    ] = None


class PipelineOrder(StoredDocument, frozen=True, kw_only=True):
    """A person's order for an application: to stop, or to restart each time `restart` changes.

    It is stored in `weir:pipeline:orders`.
    """

    stopped: Annotated[bool, describe("Whether the application stays stopped until it is started.")] = False
    restart: Annotated[int, describe("Number of manual restarts.")] = 0
    by: str = ""
    reason: str = ""
    at: Instant | None = None


class LogLine(StoredDocument, frozen=True, kw_only=True, gc=False):
    """A line of the process' log."""

    at: Instant
    level: str
    text: str


class PipelineLog(StoredDocument, frozen=True, kw_only=True):
    """The newest lines of the process' log (`weir:pipeline:log`), the oldest first."""

    lines: list[LogLine] = []


class ApplicationAtWork(StoredDocument, frozen=True, kw_only=True):
    """A declared application as the pipeline runs it (`weir:pipeline:at-work`)."""

    name: str
    version: Annotated[int, describe("0: shipped with Weir.")]
    text: Annotated[str, describe("YAML.")]
    refused: Annotated[str | None, describe("Why the pipeline rejects this version.")] = None


class ContributingEvent(StoredDocument, frozen=True, kw_only=True, gc=False):
    """An event of a match."""

    time_us: Annotated[int, describe("µs since 1970.")]
    id: str | None = None
    type: str | None = None
    value: float | None = None
    source: str | None = None


class MatchAttributes(StoredDocument, frozen=True, kw_only=True):
    """A complex event's description of its match."""

    pattern: str = ""
    severity: str = ""
    first_time: Annotated[Instant | None, describe("Time of its first event.")] = None
    conditions: Annotated[list[str], describe("Conditions between its events, with their values.")] = []
    measures: Annotated[dict[str, float | str | bool | None], describe("Computed values of the match.")] = {}
    events: list[ContributingEvent] = []


class ComplexEvent(StoredDocument, frozen=True, kw_only=True):
    """A match as an event (`weir:pipeline:recent:{app}`)."""

    id: str
    time: Annotated[str, describe("Time of its last event, ISO 8601.")]
    type: str
    source: Annotated[str | None, describe("The common key of its events.")] = None
    key: Annotated[str | None, describe("The pattern.")] = None
    value: float | None = None
    attributes: MatchAttributes = MatchAttributes()
