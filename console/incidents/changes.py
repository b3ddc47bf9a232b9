"""The changes before an incident: all sources, ranked (`controllers.diagnosis.changes`), and stored with it.

Changes are searched when the incident fires, again half a minute later (when the last snapshots before it are stored),
while it is young (a deploy may be reported late), and at its end. The last result is stored with it, so that its review
has it when the ledger and the snapshots are gone. How often a kind came before is counted over the stored changes of
incidents of the same condition.
"""

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.db.models import Count, F, Model, Q, QuerySet
from django.db.models.functions import TruncMinute

from common.stored_document import BadDocument
from console.incidents.change_sources import FoundChange, find_changes, query_audited
from console.models import AuditEntry, Mark
from console.timeline.restarts import list_restarts
from controllers.diagnosis.changes import (
    SLACK_SECONDS,
    KindRecord,
    PlantChange,
    compute_change_probability,
    compute_distances,
    rank_changes,
)
from workers.alerts.incidents import REACH, compute_onset
from workers.alerts.lifecycle.models import Alert, Incident
from workers.coordination.connections import repeat_until_stopped
from workers.documents.snapshot import NOTHING_SEEN, Snapshot
from workers.history.snapshot_archive import snapshot_at
from workers.models import LedgerEntry, Loop, Override, PipelineVersion, Plan
from workers.plants.influences import build_influences, list_alert_parts
from workers.retries.models import RetryPlan

MAX_STORED = 25
RECORD_DAYS = timedelta(days=30)
LOOPS_RECORD = timedelta(days=1)  # loops act so often that a day is enough to estimate their frequency
# The prior frequency of rare changes, until there are records: people change a kind of thing once in two
# weeks.
PRIOR, LOOPS_PRIOR = timedelta(days=7), timedelta(hours=3)
MAX_INCIDENTS = 200  # minimum for an estimate from records
NEAR_STEPS = 1  # steps upstream within which a change counts as preceding an incident
# Prior frequencies of changes that come from snapshots alone, which are not counted over days, by the last
# word of their kind. Rates change each day; a node, a host, or a producer appears or disappears less than
# once a week.
APPEARANCE_CHANCES = {"rose": 0.15, "fell": 0.15}
APPEARANCE_CHANCE = 0.04
RELIEFS = ("producer left", "producer fell")
# Kinds of changes that nobody decided. They matter only to the parts that the changed part influences.
ON_THEIR_OWN = ("producer ", "host ", "node ", "application ", "type ", "loop ", "harmful ")
RESTARTS = ("restart", "process.restart")
RESTART_STEPS = 2  # from a process to the part that it serves, and to the subject; other restarts are unrelated
GONE = " left"  # the last word of an appearance's kind
YOUNG = timedelta(minutes=30)  # while it is so young
SEARCH_EVERY = timedelta(minutes=2)
SOON = timedelta(seconds=30)  # the snapshots of its first seconds are stored some seconds later


@dataclass(frozen=True, kw_only=True)
class IncidentChange:
    """A change as stored with an incident.

    steps: distance upstream of the disturbed part, None: not upstream; delay_seconds: time to the onset.
    before, incidents: how many incidents of this condition had such a change upstream and near, without this one.
    """

    kind: str
    at: datetime
    words: str
    by: str
    ref: str
    steps: int | None
    delay_seconds: float
    weight: float
    before: int = 0
    incidents: int = 0

    def document(self) -> dict[str, Any]:
        """Return it as stored, and as the API returns it."""
        return {**vars(self), "at": self.at.isoformat()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "IncidentChange":
        return cls(**{**document, "at": datetime.fromisoformat(document["at"])})


def is_incident(alert: Alert) -> bool:
    """Return whether the alert fired, and no other alert explains it."""
    return alert.fired_at is not None and alert.under_id is None


def load_changes(alert: Alert) -> list[IncidentChange]:
    """Return the last result, the most likely cause first; empty before the first search."""
    kept = Incident.objects.filter(alert=alert).values_list("changes", flat=True).first()
    return [IncidentChange.from_document(change) for change in kept or ()]


def keep_changes(alert: Alert, data: Path, now: datetime) -> list[IncidentChange]:
    """Search the changes, and store them.

    For an incident that was open for longer than snapshots are stored, the result of its start is kept: without the
    onset's snapshot nothing is upstream.
    """
    if (
        not _is_young(alert, now)
        and (kept_before := load_changes(alert))
        and (_snapshot(data, compute_onset(alert)) is NOTHING_SEEN)
    ):
        Incident.objects.filter(alert=alert).update(changes_at=now)
        return kept_before
    changes = search_changes(alert, data)
    kept = [change.document() for change in changes[:MAX_STORED]]
    Incident.objects.update_or_create(alert=alert, defaults={"changes": kept, "changes_at": now})
    return changes


def search_changes(alert: Alert, data: Path) -> list[IncidentChange]:
    """Return all changes in the REACH before its onset, the most likely cause first; nothing is stored."""
    onset = compute_onset(alert)
    around = find_changes(onset - REACH, onset, data, timedelta(seconds=SLACK_SECONDS))
    changes = [change for change in around if not is_the_incident(change, alert) and not _is_relief(change, alert)]
    snapshot = _snapshot(data, onset)
    steps = compute_steps_upstream(alert, snapshot)
    kinds = Counter(change.kind for change in changes)
    records = compute_kind_records(alert.condition, kinds, alert.pk, onset, data)
    plain = [
        PlantChange(
            change.kind,
            change.at.timestamp(),
            change.parts,
            change.times,
            change.over_at is not None and change.over_at <= onset,
        )
        for change in changes
    ]
    ranked = rank_changes(plain, onset.timestamp(), steps, records)
    known = snapshot is not NOTHING_SEEN and bool(list_alert_parts(alert.labels))
    rows = [row for row in ranked if not (known and _is_unrelated(changes[row.place], row.steps))]
    return [_build_row(changes[row.place], row.steps, row.delay_seconds, row.weight, records) for row in rows]


def is_the_incident(change: FoundChange, alert: Alert) -> bool:
    """Return whether the change is the incident: that its subject disappeared is the effect, not a cause."""
    return change.kind.endswith(GONE) and not change.parts.isdisjoint(list_alert_parts(alert.labels))


def _is_relief(change: FoundChange, alert: Alert) -> bool:
    """Return whether a producer sends less, or has left. Neither delays a queue."""
    return change.kind in RELIEFS and not {"producer", "pipeline"} & set(alert.labels) and "queue" in alert.labels


def _is_unrelated(change: FoundChange, steps: int | None) -> bool:
    """Return whether a change that nobody decided, or a restart, can't have affected the subject."""
    if change.kind in RESTARTS:
        return bool(change.parts) and (steps is None or steps > RESTART_STEPS)
    return steps is None and change.kind.startswith(ON_THEIR_OWN)


def compute_steps_upstream(alert: Alert, snapshot: Snapshot) -> dict[str, int]:
    """Return each part that may have caused the alert, and its distance in steps.

    The nodes that it touches are one step away. An alert of the whole plant may come from anywhere: every part is one
    step away.
    """
    subjects = list_alert_parts(alert.labels)
    influences = build_influences(snapshot)
    if not subjects:
        every = {part for acting in influences.values() for part in acting} | set(influences)
        return {**dict.fromkeys(every, 1), f"rule/{alert.rule_name}": 0}
    steps = compute_distances(influences, [*subjects, f"rule/{alert.rule_name}"])
    touched = compute_distances(influences, [f"node/{name}" for name in alert.touches.get("nodes", ())])
    for part, count in touched.items():
        steps[part] = min(count + 1, steps.get(part, count + 1))
    return steps


def compute_kind_records(
    condition: str, kinds: Mapping[str, int], but: int, onset: datetime, data: Path
) -> dict[str, KindRecord]:
    """Return by kind how often such changes preceded incidents of this condition, and by chance.

    kinds: with their number in the REACH before the onset. Explained alerts are no incidents of their own, and those
    that started together with this one may turn out to be explained: neither is counted.
    """
    kept = (
        Incident.objects.filter(
            alert__condition=condition,
            alert__under__isnull=True,
            alert__began_at__lte=onset - timedelta(seconds=SLACK_SECONDS),
            changes_at__isnull=False,
        )
        .exclude(alert=but)
        .order_by("-alert__began_at")
        .values_list("changes", flat=True)[:MAX_INCIDENTS]
    )
    incidents = list(kept)[::-1]
    before = _count_once(incidents)
    chances = _compute_chances(onset, data)
    return {
        kind: KindRecord(before[kind], len(incidents), chances.get(kind) or _estimate_usual(kind, count))
        for kind, count in kinds.items()
    }


def _count_once(incidents: Iterable[list[dict[str, Any]]]) -> Counter[str]:
    """Return by kind how many incidents had a change of it upstream, the oldest incident first.

    Only changes within NEAR_STEPS count, since in a small plant all is upstream of all, and a deploy at another queue
    says nothing about deploys here. One change counts only for the first incident after it: five incidents in one night
    are not five causes.
    """
    before: Counter[str] = Counter()
    counted: set[tuple[str, str, str]] = set()
    for rows in incidents:
        upstream = {(row["kind"], row["at"], row["ref"]) for row in rows if _is_near(row["steps"])}
        before.update({kind for kind, _, _ in upstream - counted})
        counted |= upstream
    return before


def _is_near(steps: int | None) -> bool:
    return steps is not None and steps <= NEAR_STEPS


def _estimate_usual(kind: str, count: int) -> float:
    """Return the usual frequency, higher if it has happened several times recently."""
    assumed = APPEARANCE_CHANCES.get(kind.rpartition(" ")[2], APPEARANCE_CHANCE)
    return max(assumed, _compute_chance(count, REACH, PRIOR))


def _build_row(
    found: FoundChange, steps: int | None, delay_seconds: float, weight: float, records: Mapping[str, KindRecord]
) -> IncidentChange:
    record = records[found.kind]
    return IncidentChange(
        kind=found.kind,
        at=found.at,
        words=found.words,
        by=found.by,
        ref=found.ref,
        steps=steps,
        delay_seconds=round(delay_seconds, 1),
        weight=round(weight, 6),
        before=record.before,
        incidents=record.incidents,
    )


def _snapshot(data: Path, at: datetime) -> Snapshot:
    try:
        return snapshot_at(data, at.timestamp()) or NOTHING_SEEN
    except (BadDocument, OSError):
        return NOTHING_SEEN


def _compute_chances(onset: datetime, data: Path) -> dict[str, float]:
    """Return by kind the probability that any REACH contains such a change.

    It comes from the records before the onset.
    """
    since = onset - RECORD_DAYS
    counts: Counter[str] = Counter()
    for name, count in _count_override_actions(since, onset).items():
        counts[f"override {name}"] += count
        counts["override ended"] += count
    for kind, count in _count_by_column(Plan.objects.filter(started_at__range=(since, onset)), "kind"):
        counts[f"plan {kind}"] += count
    for kind, count in _count_by_column(RetryPlan.objects.filter(started_at__range=(since, onset)), "kind"):
        counts[f"retry {kind}"] += count
    counts["declaration"] = PipelineVersion.objects.filter(created_at__range=(since, onset)).count()
    counts.update(dict(_count_by_column(query_audited(since, onset), "action")))
    marks = Mark.objects.filter(at__range=(since, onset), removed_at=None)
    counts.update(dict(_count_by_column(marks, "kind")))
    counts["restart"] = len(list_restarts(data, since, onset))
    observed = _compute_record_length(onset, RECORD_DAYS)
    return {
        **{kind: _compute_chance(count, observed, PRIOR) for kind, count in counts.items()},
        **_compute_loop_chances(onset),
    }


def _count_override_actions(since: datetime, until: datetime) -> Counter[str]:
    """Return by name how often people set such overrides.

    Overrides that one person sets within a minute for one reason are one action, such as holding the loops of a queue.
    """
    rows = Override.objects.filter(created_at__range=(since, until)).order_by()
    acts = rows.values_list("name", "owner", "reason", TruncMinute("created_at")).distinct()
    return Counter(name for name, *_ in acts)


def _compute_chance(count: int, observed: timedelta, prior: timedelta) -> float:
    return compute_change_probability(count, *(period.total_seconds() for period in (REACH, observed, prior)))


def _compute_record_length(onset: datetime, most: timedelta) -> timedelta:
    """Return the length of the record: since the plant's first audited change."""
    first = AuditEntry.objects.order_by("pk").values_list("at", flat=True).first()
    return most if first is None else min(most, max(onset - first, timedelta()))


def _compute_loop_chances(onset: datetime) -> dict[str, float]:
    done = LedgerEntry.objects.filter(at__range=(onset - LOOPS_RECORD, onset), acted=True, mode__in=Loop.ACTING)
    observed, chances = _compute_record_length(onset, LOOPS_RECORD), dict[str, float]()
    for row in done.order_by().values("loop__law", "verdict").annotate(count=Count("pk")):
        harmful = row["verdict"] == LedgerEntry.Verdict.HARMFUL
        kind = f"{'harmful' if harmful else 'loop'} {row['loop__law']}"
        chances[kind] = max(chances.get(kind, 0.0), _compute_chance(row["count"], observed, LOOPS_PRIOR))
    return chances


def _count_by_column(rows: QuerySet[Model], column: str) -> Sequence[tuple[str, int]]:
    counts: Sequence[tuple[str, int]] = rows.order_by().values_list(column).annotate(Count("pk"))
    return counts


def is_due(alert: Alert, now: datetime) -> bool:
    """Return whether the incident's changes must be searched.

    They are searched at once, every few minutes while it is young, and at its end.
    """
    incident = getattr(alert, "incident", None)
    searched_at: datetime | None = incident.changes_at if incident else None
    if searched_at is None:
        return True
    if alert.resolved_at is not None:
        return searched_at < alert.resolved_at
    is_first = alert.since is not None and searched_at - alert.since < SOON
    if alert.returned_at is not None and searched_at < alert.returned_at:
        return True
    return _is_young(alert, now) and now - searched_at >= (SOON if is_first else SEARCH_EVERY)


def _is_young(alert: Alert, now: datetime) -> bool:
    return alert.since is not None and now - alert.since < YOUNG


logger = logging.getLogger(__name__)
CHECK_SECONDS = 10.0
MAX_PER_CHECK = 4  # each reads some twenty snapshots
MAX_SEEN = 100  # that may be due
LATELY = timedelta(days=1)  # an end that was missed (the alerter was down) is handled later


class ChangeKeeper:
    """The search for the changes before each incident.

    `step` is one check. `run` checks until it is stopped. Two instances are harmless: they store the same.
    """

    def __init__(self, data: Path) -> None:
        self._data = data

    def step(self, now: datetime) -> int:
        """Examine due incidents; return their number."""
        rows = Alert.objects.select_related("incident").filter(fired_at__isnull=False, under=None)
        lately = rows.filter(Q(resolved_at__isnull=True) | Q(resolved_at__gte=now - LATELY))
        never, at_end = Q(incident__changes_at=None), Q(incident__changes_at__lt=F("resolved_at"))
        young = Q(resolved_at=None) & (Q(fired_at__gt=now - YOUNG) | Q(came_back__gt=0))
        # Each is examined once before any is examined again: the first of many may be the cause of the
        # others.
        longest_ago = (F("incident__changes_at").asc(nulls_first=True), "-fired_at")
        incidents = lately.filter(never | at_end | young).order_by(*longest_ago)[:MAX_SEEN]
        due = [alert for alert in incidents if is_due(alert, now)][:MAX_PER_CHECK]
        for alert in due:
            keep_changes(alert, self._data, now)
        return len(due)

    def run(self, stop: threading.Event) -> None:
        what = "Changes before incidents can't be searched"
        repeat_until_stopped(stop, CHECK_SECONDS, lambda: self.step(datetime.now(UTC)), what)
