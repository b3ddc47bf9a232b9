"""The pipeline in the snapshot: figures of all applications together, and of each."""

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from console.api.answer.schema import ApiAnswer, Bytes, Events, Instant, PerSecond, Seconds, Share, build_enum_field
from console.api.schemas.plants import TaskMeasures
from workers.documents.pipeline import STATES

State = Annotated[str, build_enum_field(STATES)]


_Rates = TypedDict("_Rates", {"in": PerSecond, "out": PerSecond})  # "in" is a Python keyword


class RuleFlow(_Rates):
    """A rule's events per second."""

    name: str


class PatternCounts(ApiAnswer):
    """A pattern of the pipeline; counts continue over restarts."""

    matches: int
    quiet: NotRequired[Annotated[int, Field(description="Number of matches in the suppression interval.")]]
    seconds: Annotated[Seconds | None, Field(description="Matching time of one event, s.")]


class ControlKeys(ApiAnswer):
    """Events and matches of the control keys, which are never shed."""

    types: dict[str, PerSecond]
    out_per_second: PerSecond


class RecallEstimate(ApiAnswer):
    """The share of all matches that are found, estimated from the control keys."""

    estimate: Share
    low: Share
    high: Annotated[Share | None, Field(description="null: no bound.")]
    matches: Annotated[int, Field(description="Number of matches of the control keys.")]


class PatternStatus(PatternCounts):
    """A pattern of an application."""

    operator: str
    emits: Annotated[str, Field(description="The type of its complex events.")]
    expression: str
    sheddable: bool
    types: Annotated[dict[str, PerSecond], Field(description="Events per second by type.")]
    partnerless_per_second: NotRequired[
        Annotated[PerSecond, Field(description="Events/s that could not contribute to a match.")]
    ]
    forgotten_bytes_per_second: NotRequired[
        Annotated[
            PerSecond, Field(description=("Bytes/s of open matches that were dropped because too many were open."))
        ]
    ]
    out_per_second: PerSecond
    shed_events: Annotated[dict[str, int], Field(description="Total events shed, by type.")]
    shed_per_second: dict[str, PerSecond]
    shed_share: Share
    spared: ControlKeys
    recall: RecallEstimate | None


class HeldCriterion(ApiAnswer):
    """A person's value in place of a criterion's own."""

    value: float
    until_seconds: Annotated[Instant | None, Field(description="Unix time; null: no expiry.")]
    owner: str
    reason: str


class ApplicationControls(ApiAnswer):
    """The controls of an application."""

    admit_events_per_second: Annotated[
        PerSecond | None,
        Field(
            description=(
                "Maximum dispatch rate (up to 1.5 times as much to catch up); null: limited only by free space."
            )
        ),
    ]
    reserve_bytes: NotRequired[
        Annotated[Bytes, Field(description="Size of the part of the result queue that admission keeps free.")]
    ]
    admit_until_seconds: NotRequired[Instant | None]
    admit_events_per_batch: NotRequired[Events]
    combine_events_per_batch: NotRequired[Events]
    shares: NotRequired[Annotated[dict[str, Share], Field(description="Keyed by replica.")]]
    parallelism: int
    tasks: Annotated[dict[str, int], Field(description="Number of tasks by operator.")]
    result_bytes: NotRequired[Bytes]
    lateness_seconds: NotRequired[Seconds]
    ahead_seconds: NotRequired[Seconds]
    hold_seconds: NotRequired[Seconds]
    criteria: dict[str, float]
    held_criteria: NotRequired[dict[str, HeldCriterion]]
    shed: NotRequired[Annotated[dict[str, dict[str, Share]], Field(description="Keyed by pattern, then by type.")]]
    shed_until_seconds: NotRequired[Annotated[Instant | None, Field(description="When shedding expires.")]]
    shed_by: NotRequired[str]
    spared_keys_share: NotRequired[Share]
    revision: NotRequired[int]


class ResultQueueFigures(ApiAnswer):
    capacity_bytes: Bytes
    used_bytes: Bytes
    free_bytes: Bytes
    bytes_per_event: float


class ReplicaStatus(ApiAnswer):
    """One replica of the first tier."""

    share: Annotated[Share, Field(description="Share of the events that the dispatcher assigns to the replica.")]
    in_per_second: PerSecond
    kept_per_second: PerSecond
    utilisation: Share
    batch_seconds: Seconds | None
    response_seconds: Seconds | None
    response_error_seconds: NotRequired[
        Annotated[Seconds | None, Field(description="Standard error of `response_seconds`, s.")]
    ]
    work: TaskMeasures


class CombinerStatus(ApiAnswer):
    waits_for: Annotated[str | None, Field(description="The replica that the combiner waits for; null: none.")]
    held_results: int | None


class OperatorStatus(ApiAnswer):
    """An operator of the second tier."""

    key: str | None
    level: int
    reads_source: bool
    in_per_second: PerSecond
    out_per_second: PerSecond
    tasks: Annotated[int | None, Field(description="Number of tasks in the newest batch.")]
    parallelism: Annotated[int, Field(description="The configured number of tasks.")]
    utilisation: Share
    seconds: Annotated[Seconds | None, Field(description="Processing time of one event, s.")]
    overhead_seconds: Annotated[Seconds | None, Field(description="Time in addition to matching, s.")]
    shed_share: Share
    late_per_second: PerSecond
    patterns: list[str]
    work: Annotated[list[TaskMeasures], Field(description="Measurements of each task.")]


class MonitoredValue(ApiAnswer):
    """A quantile that a criterion follows."""

    column: str
    type: str | None
    quantile: Share
    window_seconds: Seconds
    events: Events
    value: float | None


class OperatorEdge(ApiAnswer):
    source: str
    target: str
    type: str


class TierFigures(ApiAnswer):
    """Figures of an application, or of all together; null: unknown."""

    error: str | None
    hindrance: NotRequired[Annotated[str | None, Field(description="Why there is no progress.")]]
    batch: int | None
    in_per_second: PerSecond | None
    kept_per_second: PerSecond | None
    alerts_per_second: PerSecond | None
    batch_seconds: Seconds | None
    watermark_lag_seconds: Seconds | None
    waiting_events: Events | None
    offered_per_second: NotRequired[PerSecond | None]
    shed_per_second: NotRequired[PerSecond | None]
    shed_events: NotRequired[Events]
    late_events: NotRequired[Events]
    outbox: NotRequired[
        Annotated[
            dict[str, Events], Field(description="Number of complex events that each queue has not accepted yet.")
        ]
    ]
    skipped_nodes: NotRequired[list[str]]


class ApplicationRestarts(ApiAnswer):
    """How often an application was restarted, and whether it fails now."""

    count: NotRequired[Annotated[int, Field(description="Total number of restarts.")]]
    tries: NotRequired[Annotated[int, Field(description="Number of consecutive failures without progress.")]]
    failed_at: NotRequired[Annotated[Instant | None, Field(description="null: not failing.")]]
    next_try_at: NotRequired[Annotated[Instant | None, Field(description="null: no automatic retry.")]]
    last_error: NotRequired[str | None]
    last_error_at: NotRequired[Instant | None]


class ApplicationStatus(TierFigures):
    """The status that an application reports."""

    state: State
    outbox_full: NotRequired[
        Annotated[bool, Field(description="Whether reading is paused until queues accept complex events.")]
    ]
    restarts: NotRequired[ApplicationRestarts | None]
    rules: list[RuleFlow]
    queues: list[str]
    sinks: Annotated[dict[str, list[str]], Field(description="The queues that receive each complex event.")]
    batch_overhead_seconds: Seconds | None
    batch_overhead_cv2: NotRequired[
        Annotated[float | None, Field(description="Variance of the batch overhead divided by its squared mean.")]
    ]
    latency_p95_seconds: Seconds | None
    shed_share: Share
    complex_events: int
    patterns: dict[str, PatternStatus]
    controls: ApplicationControls
    admitted_events: Events
    in_flight_events: Events
    result_queue: ResultQueueFigures
    replicas: dict[str, ReplicaStatus]
    combiner: CombinerStatus
    operators: dict[str, OperatorStatus]
    monitored: dict[str, MonitoredValue]
    edges: list[OperatorEdge]


class PipelineStatus(TierFigures):
    """All applications together."""

    state: State | None
    rules: list[RuleFlow]
    age_seconds: Annotated[Seconds | None, Field(description="Time since the last report, s; null: no report yet.")]
    result_free_bytes: NotRequired[Bytes | None]
    patterns: dict[str, PatternCounts]
    ahead_seconds: NotRequired[
        Annotated[
            Seconds | None, Field(description="Clock offset of its host from the control server, s; positive: ahead.")
        ]
    ]
    applications: dict[str, ApplicationStatus]
