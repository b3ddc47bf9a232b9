"""States in words, and one order for everything with a state: the worst first, so that the top of a list is enough."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.urls import reverse

from console.display.script_rules import GRACE_SECONDS, LATE_INTERVALS, STATE_WORDS
from queues.models import Node, Queue
from queues.nodes.node_state import STATES
from workers.alerts.lifecycle.models import Alert
from workers.documents.alerts import AlertStatus
from workers.documents.loops import LoopStatus
from workers.documents.snapshot import Snapshot
from workers.documents.states import SEVERITIES, Severity, SubjectState
from workers.models import LedgerEntry, Loop, Override
from workers.snapshot.evaluate import get_states


def get_health_word(health: object) -> str:
    """Return the word before the plant's sentence. An observer of an earlier version has no word."""
    return getattr(health, "word", "") or get_state_word(getattr(health, "state", None))


def get_state_word(state: object) -> str:
    """Return the word for a node's or a plant's state."""
    return STATE_WORDS.get(str(state), "Unknown")


VERDICTS = {
    LedgerEntry.Verdict.HARMFUL: 5.0,
    LedgerEntry.Verdict.INEFFECTIVE: 3.0,
    LedgerEntry.Verdict.CHECKING: 1.0,
    LedgerEntry.Verdict.EFFECTIVE: 1.0,
}
LATE, HANDED_OVER, OVERRIDDEN = 4.0, 2.0, 1.5


def compute_tick_lateness(status: LoopStatus | None, interval_seconds: float, at: float | None) -> float:
    """Return by how many seconds the loop's next tick is late in a snapshot of the time `at`.

    The result is 0 if the tick is on time, or if this is unknown.
    """
    if status is None or status.at is None or at is None:
        return 0.0
    since = at - status.at
    return since - interval_seconds if since > LATE_INTERVALS * interval_seconds + GRACE_SECONDS else 0.0


def compute_loop_severity(status: LoopStatus | None, late_seconds: float) -> float:
    """Return the severity of the loop's worst problem."""
    if status is None:
        return 0.0
    return max(
        VERDICTS.get(LedgerEntry.Verdict(status.verdict), 0.0) if status.verdict else 0.0,
        LATE if late_seconds else 0.0,
        HANDED_OVER if status.mode in Loop.HANDED_OVER else 0.0,
        OVERRIDDEN if status.overrides else 0.0,
    )


def find_subject_page(kind: str, name: str) -> str:
    """Return its page; the list of its kind if it has no page any more."""
    if kind == "host":
        return reverse("worker-host", args=[name]) if is_known_host(name) else reverse("workers")
    if kind == "node":
        is_there = Node.objects.filter(name=name).exists()
    else:
        is_there = Queue.objects.filter(name=name).exists()
    return reverse(kind, args=[name]) if is_there else reverse(f"{kind}s")


def is_known_host(name: str) -> bool:
    """Return whether there is something to show of a worker host that does not report.

    That is the loop of its pool (which is retired with it, but stays), a drain, or an alert.
    """
    return (
        Loop.objects.filter(target__host=name).exists()
        or Override.objects.filter(host=name).exists()
        or Alert.objects.filter(labels__host=name).exists()
    )


LISTED = ("node", "queue")  # always; others only if they have a problem
Rank = tuple[int, int, float]


@dataclass(frozen=True, kw_only=True)
class RankedSubject:
    """A subject with a state and its severity.

    subject: "kind/name"; state: its sign; finding: the problem in a sentence; figure: a node's utilization (share) or a
    queue's wait (s), None if unknown; since: when this severity started, Unix time;
    has_reported: false for a node that has never reported.
    """

    kind: str
    name: str
    subject: str
    url: str
    state: str | None
    word: str
    severity: Severity
    stale: bool
    finding: str | None
    figure: float | None
    since: float | None
    has_reported: bool
    rank: Rank


def rank_subjects(snapshot: Snapshot | None) -> list[RankedSubject]:
    """Return the subjects, the worst first, then by name. Subjects that another one explains are left out."""
    if snapshot is None:
        return []
    rows = [
        _build_ranked_subject(snapshot, state)
        for state in get_states(snapshot).values()
        if state.kind in LISTED or (state.finding and state.within is None)
    ]
    return sorted(rows, key=lambda row: (*(-part for part in row.rank), row.kind, row.name))


def rank(snapshot: Snapshot, kind: str, name: str) -> Rank:
    """Return a subject's severity, its sign, then its utilization or wait."""
    state = get_states(snapshot).get(f"{kind}/{name}")
    return _rank(snapshot, state) if state is not None else (0, 0, 0.0)


def _build_ranked_subject(snapshot: Snapshot, state: SubjectState) -> RankedSubject:
    queue = snapshot.queues.get(state.name) if state.kind == "queue" else None
    node = snapshot.nodes.get(state.name) if state.kind == "node" else None
    return RankedSubject(
        kind=state.kind,
        name=state.kind if state.kind == "pipeline" else state.name,
        subject=f"{state.kind}/{state.name}",
        url=get_subject_url(snapshot, state.kind, state.name),
        state=state.sign,
        word=state.word,
        severity=state.severity,
        stale=state.stale,
        finding=state.finding,
        figure=node.utilisation if node else queue.wait_seconds if queue else None,
        since=state.since,
        has_reported=node is None or node.state is not None,
        rank=_rank(snapshot, state),
    )


def _rank(snapshot: Snapshot, state: SubjectState) -> Rank:
    sign = STATES.index(state.sign) if state.sign in STATES else 0
    return SEVERITIES.index(state.severity), sign, _compute_load_share(snapshot, state) + 0.5 * state.stale


def _compute_load_share(snapshot: Snapshot, state: SubjectState) -> float:
    """Return a node's utilization or a queue's wait, as a number below 1."""
    if state.kind == "node" and state.name in snapshot.nodes:
        return min(snapshot.nodes[state.name].utilisation or 0.0, 1.0)
    queue = snapshot.queues.get(state.name) if state.kind == "queue" else None
    wait = (queue.wait_seconds or 0.0) if queue else 0.0
    return wait / (1.0 + wait)


def get_subject_url(snapshot: Snapshot, kind: str, name: str) -> str:
    """Return the page where a subject is shown."""
    if kind in ("node", "queue"):
        return reverse(kind, args=[name])
    if kind == "loop" and (loop := snapshot.loops.get(name)) is not None:
        return reverse("loop", args=[loop.id])
    pages = {"pipeline": "pipeline", "application": "pipeline", "host": "workers", "loop": "loops"}
    return reverse(pages.get(kind, "overview"))


def list_calling_alerts(alerts: Iterable[AlertStatus]) -> list[AlertStatus]:
    """Return the open alerts that are not explained, silenced, or snoozed: they need somebody or are acknowledged."""
    return [row for row in alerts if row.quiet in (None, "acknowledged")]
