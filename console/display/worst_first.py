"""The worst first: one order for everything with a state, so that the top of a list is enough."""

from dataclasses import dataclass

from django.urls import reverse

from queues.nodes.node_state import STATES
from workers.documents.snapshot import Snapshot
from workers.documents.states import SEVERITIES, Severity, SubjectState
from workers.snapshot.evaluate import get_states

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
