"""An incident as its page shows it: the cause, its alerts, who is affected, and earlier incidents like it."""

from dataclasses import dataclass
from pathlib import Path

from console.incidents.affected import AffectedQueue, BudgetLeft, list_affected_queues, list_names
from console.incidents.quick_actions import find_incident_finding
from console.incidents.similar import SimilarIncident, list_similar_incidents
from workers.alerts.evaluation import impact
from workers.alerts.lifecycle.models import Alert
from workers.documents.snapshot import Snapshot
from workers.documents.states import build_finding_key

MAX_ALERTS = 50
MAX_BARS = 6


@dataclass(frozen=True, kw_only=True)
class IncidentSummary:
    """A root alert with the alerts that it explains, the root first.

    cause: its headline; key: identifies its finding in the next snapshot, "" if it has none; names: those that its
    texts show on a tint; budget: the one that is used up first.
    """

    number: int
    root: Alert
    cause: str
    impact: str
    key: str
    names: list[str]
    alerts: list[Alert]
    affected: list[AffectedQueue]
    budget: BudgetLeft | None
    similar: list[SimilarIncident]

    @property
    def bars(self) -> list[Alert]:
        """Return the alerts that the chart shows."""
        return self.alerts[:MAX_BARS]


def build_incident_summary(alert: Alert, snapshot: Snapshot, data: Path) -> IncidentSummary:
    """Return the incident that an alert belongs to. Without a finding, the alert itself says what happened."""
    root = alert.under or alert
    is_over = root.resolved_at is not None
    finding = None if is_over else find_incident_finding(root.pk, snapshot)
    explained = root.explained.filter(fired_at__isnull=False).select_related("incident").order_by("fired_at")
    alerts = [root, *explained[:MAX_ALERTS]]
    affected = [] if is_over else list_affected_queues(alerts, finding, snapshot)
    budgets = [row.budget for row in affected if row.budget and row.budget.used_up_at is not None]
    return IncidentSummary(
        number=root.pk,
        root=root,
        cause=finding.sentence if finding else root.title,
        impact=(finding.impact if finding else "") or impact.read_recorded_impact(root),
        key=build_finding_key(finding) if finding else "",
        names=list_names(finding) if finding else [],
        alerts=alerts,
        affected=affected,
        budget=min(budgets, key=lambda budget: budget.used_up_at or 0.0, default=None),
        similar=list_similar_incidents(root, data),
    )
