"""Alert rules, and the preview of one."""

from typing import Annotated

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Instant, Labels, Seconds
from console.api.schemas.alerts.alerts import Severity
from console.api.schemas.alerts.silences import LabelMatcher


class EscalationStep(ApiAnswer):
    after_minutes: float
    receivers: list[str]


class RuleRow(ApiAnswer):
    """An alert rule."""

    name: str
    revision: Annotated[int, Field(description="Increases with each change.")]
    condition: str
    matchers: list[LabelMatcher]
    group_by: Annotated[
        list[str], Field(description="Alerts with equal values of these labels are sent in one message.")
    ]
    escalation: list[EscalationStep]
    enabled: bool
    title: str
    runbook: str
    severity: Severity
    threshold: Annotated[float, Field(description="Threshold in the unit of the condition.")]
    clear_threshold: float
    window_seconds: Seconds
    for_seconds: Seconds
    keep_seconds: Seconds
    acknowledge_minutes: float


class RuleList(ApiAnswer):
    rules: list[RuleRow]


class PredictedAlert(ApiAnswer):
    labels: Labels
    at: Instant
    until: Instant | None


class RulePreview(ApiAnswer):
    """What a rule would have done in the last 24 h."""

    sentence: str
    stored_seconds: Annotated[Seconds, Field(description="Length of the history that the preview uses, s.")]
    fired: list[PredictedAlert]


class RuleDetail(RuleRow):
    preview: RulePreview
