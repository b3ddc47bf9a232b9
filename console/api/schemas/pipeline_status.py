"""What the snapshot has of the pipeline: figures of all applications together, and of each."""

from typing import Annotated

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Bytes, Events, Instant, PerSecond, Seconds, Share, one_of
from console.api.schemas.plants import TaskMeasures
from workers.documents.pipeline import STATES

State = Annotated[str, one_of(STATES)]


class RuleFlow(ApiAnswer):
    """A rule's events, a second."""

    name: str
    taken: PerSecond = Field(alias="in")
    given: PerSecond = Field(alias="out")


class PatternCounts(ApiAnswer):
    """A pattern of the pipeline; counts go on over restarts."""

    matches: int
    quiet: int = Field(0, description="Matches in the suppression interval.")
    seconds: Seconds | None = Field(description="The matcher's time for one event, s.")


class ControlKeys(ApiAnswer):
    """What the control keys' events were, of which nothing is shed, and made of them."""

    types: dict[str, PerSecond]
    out_per_second: PerSecond


class RecallEstimate(ApiAnswer):
    """The share of all matches that are found, estimated from the control keys."""

    estimate: Share
    low: Share
    high: Share | None = Field(description="null: no bound.")
    matches: int = Field(description="Of the control keys.")


class PatternStatus(PatternCounts):
    """A pattern of an application."""

    operator: str
    emits: str = Field(description="The type of its complex events.")
    expression: str
    sheddable: bool
    types: dict[str, PerSecond] = Field(description="Events per second by type.")
    out_per_second: PerSecond
    shed_events: dict[str, int] = Field(description="Events shed since ever, by type.")
    shed_per_second: dict[str, PerSecond]
    shed_share: Share
    spared: ControlKeys
    recall: RecallEstimate | None


class HeldCriterion(ApiAnswer):
    """A person's value in place of a criterion's own."""

    value: float
    until_seconds: Instant | None = Field(description="Seconds since 1970; null: it has no end.")
    owner: str
    reason: str


class ApplicationControls(ApiAnswer):
    """What steers an application."""

    admit_events_per_second: PerSecond | None = Field(
        description="At most; null: as the result queue allows."
    )
    admit_until_seconds: Instant | None = None
    admit_events_per_batch: Events = 0
    combine_events_per_batch: Events = 0
    shares: dict[str, Share] = Field({}, description="By replica.")
    parallelism: int
    tasks: dict[str, int] = Field(description="By operator.")
    result_bytes: Bytes = 0
    lateness_seconds: Seconds = 0.0
    ahead_seconds: Seconds = 0.0
    hold_seconds: Seconds = 0.0
    criteria: dict[str, float]
    held_criteria: dict[str, HeldCriterion] = {}
    shed: dict[str, dict[str, Share]] = Field({}, description="By pattern, then type.")
    shed_until_seconds: Instant | None = Field(None, description="When shedding ends by itself.")
    shed_by: str = ""
    spared_keys_share: Share = 0.0
    revision: int = 0


class ResultQueueFigures(ApiAnswer):
    capacity_bytes: Bytes
    used_bytes: Bytes
    free_bytes: Bytes
    bytes_per_event: float


class ReplicaStatus(ApiAnswer):
    """One replica of the first tier."""

    share: Share = Field(description="Of the events.")
    in_per_second: PerSecond
    kept_per_second: PerSecond
    utilisation: Share
    batch_seconds: Seconds | None
    response_seconds: Seconds | None
    response_error_seconds: Seconds | None = Field(None, description="The standard error of that mean, s.")
    work: TaskMeasures


class CombinerStatus(ApiAnswer):
    waits_for: str | None = Field(description="The replica.")
    held_results: int | None


class OperatorStatus(ApiAnswer):
    """An operator of the second tier."""

    key: str | None
    level: int
    reads_source: bool
    in_per_second: PerSecond
    out_per_second: PerSecond
    tasks: int | None = Field(description="In the newest batch.")
    parallelism: int = Field(description="As it is set.")
    utilisation: Share
    seconds: Seconds | None = Field(description="For one event, s.")
    overhead_seconds: Seconds | None = Field(description="Of it beside the matching, s.")
    shed_share: Share
    late_per_second: PerSecond
    patterns: list[str]
    work: list[TaskMeasures] = Field(description="Of each task.")


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
    """Figures of an application, or of all together; null: not known."""

    error: str | None
    hindrance: str | None = Field(None, description="Why nothing moves.")
    batch: int | None
    in_per_second: PerSecond | None
    kept_per_second: PerSecond | None
    alerts_per_second: PerSecond | None
    batch_seconds: Seconds | None
    watermark_lag_seconds: Seconds | None
    waiting_events: Events | None
    offered_per_second: PerSecond | None = None
    shed_per_second: PerSecond | None = None
    shed_events: Events = 0
    late_events: Events = 0
    outbox: dict[str, Events] = Field({}, description="Queue → complex events that it has not taken yet")
    skipped_nodes: list[str] = []


class ApplicationRestarts(ApiAnswer):
    """How often an application was started anew, and whether it fails now."""

    count: int = Field(0, description="Starts after the first, since ever.")
    tries: int = Field(0, description="Failures in a row since anything was worked.")
    failed_at: Instant | None = Field(None, description="null: it does not fail.")
    next_try_at: Instant | None = Field(None, description="null: nothing tries again by itself.")
    last_error: str | None = None
    last_error_at: Instant | None = None


class ApplicationStatus(TierFigures):
    """What an application says of itself."""

    state: State
    outbox_full: bool = Field(False, description="It reads no more until queues have taken some.")
    restarts: ApplicationRestarts | None = None
    rules: list[RuleFlow]
    queues: list[str]
    sinks: dict[str, list[str]] = Field(description="The queues that each complex event goes to.")
    batch_overhead_seconds: Seconds | None
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
    age_seconds: Seconds | None = Field(description="Since it was heard; null: never.")
    result_free_bytes: Bytes | None = None
    patterns: dict[str, PatternCounts]
    applications: dict[str, ApplicationStatus]
