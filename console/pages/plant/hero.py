"""The headline of the overview: the worst problems with their causes, their impact, and what to do.

One critical problem is shown with its incident: what changed before it, who is affected, and what the loops did.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from common.stored_document import replace_fields
from console.accounts.access import Actor
from console.actions.alerts import may_quiet
from console.display.loops import FoldedDecisions, fold_decisions
from console.incidents.affected import AffectedQueue, list_affected_queues, list_names
from console.incidents.change_rows import ShownChange, build_change_rows
from console.incidents.changes import IncidentChange, is_incident, load_changes
from console.incidents.quick_actions import OfferedActions, list_finding_actions
from workers.alerts.incidents import compute_onset
from workers.alerts.lifecycle.models import Alert, AlertRule
from workers.alerts.lifecycle.open_alerts import AlertSituation, describe_situation
from workers.documents.snapshot import Snapshot
from workers.documents.states import SEVERITIES, Severity, SubjectFinding, build_finding_key
from workers.models import LedgerEntry, Loop

MAX_SHOWN = 3
MAX_WITH_ACTIONS = 10  # problems below the headline; of others, their own pages offer the actions
MAX_QUEUES, MAX_DECISIONS, MAX_CHANGES, MAX_READ = 4, 3, 2, 400
LOUD = SEVERITIES.index("warning")


@dataclass(frozen=True, kw_only=True)
class ShownFinding:
    """A problem with its buttons, and with the actions that people took.

    names: the names that its texts highlight; count, incidents: of all problems with the same text, which are one row.
    """

    finding: SubjectFinding
    names: list[str]
    offered: OfferedActions
    count: int = 1
    incidents: list[int] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Return what identifies it in the next snapshot (static/js/values/derived.js)."""
        return build_finding_key(self.finding)


@dataclass(frozen=True, kw_only=True)
class SpentBudget:
    """The error budget that the incident spends."""

    objective: str
    left_share: float


@dataclass(frozen=True, kw_only=True)
class IncidentDetails:
    """Details of the incident of the only critical problem."""

    alert: Alert
    situation: AlertSituation
    explained: int
    changes: list[ShownChange]
    queues: list[AffectedQueue]
    budget: SpentBudget | None
    decisions: list[LedgerEntry | FoldedDecisions]
    may_acknowledge: bool


@dataclass(frozen=True, kw_only=True)
class Hero:
    """The headline: the worst problems and those that a person can end, and all others folded.

    last_incident: the newest resolved one, while there is no problem.
    """

    severity: Severity
    shown: list[ShownFinding]
    others: list[ShownFinding]
    details: IncidentDetails | None
    last_incident: Alert | None

    @property
    def settles_at(self) -> float | None:
        """Return the Unix time from which the headline offers the next action if the problem remains."""
        rows = [*self.shown, *self.others]
        times = [row.offered.settles_at for row in rows if row.offered.settles_at is not None]
        return min(times, default=None)

    @property
    def names(self) -> list[str]:
        """Return the names in the headline itself."""
        return self.shown[0].names if self.shown else []


def build_hero(snapshot: Snapshot, actor: Actor, is_past: bool) -> Hero:
    """Return the headline of a snapshot. In the past, nothing can be done."""
    findings = snapshot.health.findings
    severities: list[Severity] = ["well", *(finding.severity for finding in findings)]
    severity = max(severities, key=SEVERITIES.index)
    is_loud = SEVERITIES.index(severity) >= LOUD
    groups = _fold(findings)
    # The first finding may be a milder one that the headline still holds (`workers.snapshot.headline`).
    # A milder problem that a person can end is no detail of the worst one.
    others = [
        group
        for group in groups[1:]
        if is_loud and (group[0].severity == severity or (group[0].severity == "warning" and group[0].actions))
    ]
    chosen = [*groups[:1], *others][:MAX_SHOWN]
    alone = severity == "critical" and len(chosen) == 1
    resolved = Alert.objects.filter(under=None, fired_at__isnull=False, resolved_at__isnull=False)
    return Hero(
        severity=severity,
        shown=[_build_shown(group, snapshot, actor, is_past) for group in chosen],
        others=[
            _build_shown(group, snapshot, actor, is_past or place >= MAX_WITH_ACTIONS)
            for place, group in enumerate(group for group in groups if group not in chosen)
        ],
        details=_build_details(chosen[0][0], snapshot, actor) if alone else None,
        last_incident=None if is_loud or is_past else resolved.order_by("-resolved_at", "-pk").first(),
    )


def _fold(findings: Iterable[SubjectFinding]) -> list[list[SubjectFinding]]:
    """Return the problems with the same text as one group, in their order."""
    groups: dict[tuple[str, str], list[SubjectFinding]] = {}
    for finding in findings:
        groups.setdefault((finding.sentence, finding.impact or finding.step), []).append(finding)
    return list(groups.values())


def _build_shown(group: list[SubjectFinding], snapshot: Snapshot, actor: Actor, is_past: bool) -> ShownFinding:
    first = group[0]
    actions = {action.words: action for finding in group for action in finding.actions}
    every = replace_fields(first, actions=list(actions.values()))
    return ShownFinding(
        finding=first,
        names=list_names(first),
        offered=OfferedActions() if is_past else list_finding_actions(every, snapshot, actor),
        count=len(group),
        incidents=sorted({finding.incident for finding in group if finding.incident is not None}),
    )


def find_limit(condition: str) -> float | None:
    """Return the lowest threshold of the enabled alert rules of a condition."""
    rules = AlertRule.objects.filter(condition=condition, enabled=True)
    return rules.order_by("threshold").values_list("threshold", flat=True).first()


def _build_details(finding: SubjectFinding, snapshot: Snapshot, actor: Actor) -> IncidentDetails | None:
    """Return the incident of a problem; None if it has none yet."""
    alert = Alert.objects.select_related("rule", "acknowledged_by", "silence").filter(pk=finding.incident or 0).first()
    if alert is None:
        return None
    queues = list_affected_queues([], finding, snapshot)[:MAX_QUEUES]
    since = LedgerEntry.objects.filter(at__gte=compute_onset(alert), acted=True).exclude(mode=Loop.Mode.HOLD)
    lines = fold_decisions(since.select_related("loop").order_by("-at", "-pk")[:MAX_READ])
    return IncidentDetails(
        alert=alert,
        situation=describe_situation(alert),
        explained=alert.explained.filter(resolved_at__isnull=True).count(),
        changes=build_change_rows(_list_upstream_changes(alert), actor),
        queues=queues,
        budget=_find_budget([queue.name for queue in queues], snapshot),
        decisions=[line for line in lines if isinstance(line, LedgerEntry | FoldedDecisions)][:MAX_DECISIONS],
        may_acknowledge=alert.state == Alert.State.FIRING and may_quiet(actor, alert),
    )


def _list_upstream_changes(alert: Alert) -> list[IncidentChange]:
    """Return the most likely causes among the changes before it: those upstream of its subject."""
    changes = load_changes(alert) if is_incident(alert) else []
    return [change for change in changes if change.steps is not None][:MAX_CHANGES]


def _find_budget(queues: Iterable[str], snapshot: Snapshot) -> SpentBudget | None:
    """Return the most spent budget of an objective of these queues, or of all queues."""
    subjects = {*queues, ""}
    budgets = [
        SpentBudget(objective=name, left_share=status.window_left_share)
        for name, status in snapshot.objectives.items()
        if status.kind == "queue" and status.subject in subjects and status.window_left_share is not None
    ]
    return min(budgets, key=lambda budget: budget.left_share, default=None)
