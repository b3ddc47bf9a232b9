"""The end of a problem: what its subject does again, and the restarts and loop actions in the meantime.

A message names a loop only if the ledger has an action of this loop on the subject during the problem.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from controllers.framework.reason import format_count
from queues.nodes.agent_threads import get_agent_process
from queues.nodes.node_state import OFFLINE, OVERLOADED
from workers.alerts.evaluation.impact import join_names
from workers.control.kinds.registry import find_display
from workers.documents.parts import ProcessEvent, find_starting_parts
from workers.documents.pipeline import FAILED, NOT_REPORTING, STALLED, STARTING
from workers.documents.snapshot import Snapshot
from workers.documents.states import Problem, SubjectState
from workers.models import LedgerEntry, Loop
from workers.snapshot.scene import is_filling
from workers.snapshot.suggestions import format_seconds

SHOWN_SECONDS = 60.0
MAX_READ = 500
READ = ("at", "action", "loop__law", "loop__target")
NAMES = {
    "queue": "Queue {}",
    "node": "Node {}",
    "host": "Worker host {}",
    "application": "Application {}",
    "pipeline": "The pipeline",
    "plant": "The worker pool",
}
BROKEN = (FAILED, STALLED, STARTING, NOT_REPORTING)
PROCESSES = {"pipeline": ("pipeline",), "application": ("pipeline",), "plant": ("worker-jobs",)}
SOLVING = (LedgerEntry.Verdict.CHECKING, LedgerEntry.Verdict.EFFECTIVE)


@dataclass(frozen=True, slots=True)
class SolvingAction:
    """The actions of a loop on the subject of a problem."""

    law: str
    did: str


FindAction = Callable[[Problem], SolvingAction | None]


def format_restart(event: ProcessEvent) -> str:
    """Return what happened to a process: n2 restarted after SIGKILL."""
    return f"{event.name} restarted{f' after {event.how}' if event.how else ''}"


def describe_return(subject: str, state: SubjectState, snapshot: Snapshot) -> str:
    """Return what a subject does again when its problem is over; "" if its end needs no message."""
    kind, _, name = subject.partition("/")
    queue, node = snapshot.queues.get(name), snapshot.nodes.get(name)
    application = snapshot.pipeline.applications.get(name)
    if find_starting_parts(snapshot.parts):
        return ""  # A component that starts for the first time had no problem.
    if kind == "queue" and queue is not None:
        return "keeps up" if state.late or is_filling(queue) else ""
    if kind == "node" and node is not None:
        return "reports" if node.state in (OFFLINE, None) else "has free capacity" if node.state in OVERLOADED else ""
    if kind == "application":
        return "runs" if application is not None and application.state in BROKEN else ""
    if kind == "pipeline":
        return "runs" if snapshot.pipeline.state in BROKEN else ""
    return "runs" if subject == "plant/workers" else "reports" if kind == "host" and state.stale else ""


def describe_recovery(problem: Problem, processes: Sequence[ProcessEvent], find_action: FindAction) -> str:
    """Return how a problem ended; "" if its end needs no message."""
    if not problem.returns_to or problem.ended_at is None:
        return ""
    kind, _, name = problem.subject.partition("/")
    lasted = format_seconds(problem.ended_at - problem.began_at)
    said = f"{NAMES[kind].format(name)} {problem.returns_to} again after {lasted}"
    own = (name, get_agent_process(name)) if kind == "node" else PROCESSES.get(kind, ())
    for event in processes:
        if event.kind == "restarted" and event.name in own and event.at >= problem.began_at - SHOWN_SECONDS:
            return f"{said}: {format_restart(event)}."
    action = find_action(problem)
    # The ledger does not show that the action ended the problem: the cause may have ended by itself.
    return f"{said}." if action is None else f"{said}. Meanwhile, the {action.law.replace('_', ' ')} law {action.did}."


def find_solving_action(problem: Problem) -> SolvingAction | None:
    """Return what a loop did on the subject during a problem; moved points first, then the newest action."""
    until = datetime.fromtimestamp(problem.ended_at or problem.began_at, UTC)
    lifetime = (datetime.fromtimestamp(problem.began_at, UTC), until)
    acted = LedgerEntry.objects.filter(at__range=lifetime, applied=True, mode__in=Loop.ACTING, verdict__in=SOLVING)
    entries = [
        entry
        for entry in acted.select_related("loop").only(*READ).order_by("-at", "-pk")[:MAX_READ]
        if find_display(entry.loop.law, entry.loop.target).is_news and _acts_on(entry, problem.subject)
    ]
    if not entries:
        return None
    newest = next((entry for entry in entries if (entry.action or {}).get("moves")), entries[0])
    alike = [entry for entry in entries if entry.loop.law == newest.loop.law]
    return SolvingAction(newest.loop.law, _describe(newest, alike, problem.subject))


def _acts_on(entry: LedgerEntry, subject: str) -> bool:
    kind, _, name = subject.partition("/")
    ends = {"queue": ("queue",), "node": ("from", "to")}.get(kind, ())
    moves = (entry.action or {}).get("moves", ())
    return entry.loop.target.get(kind) == name or any(move[end] == name for move in moves for end in ends)


def _describe(newest: LedgerEntry, alike: Sequence[LedgerEntry], subject: str) -> str:
    """Return an action in the past tense: moves with their nodes, and sums where a law's actions add up."""
    kind, _, name = subject.partition("/")
    display = find_display(newest.loop.law, newest.loop.target)
    moves = [move for move in (newest.action or {}).get("moves", ()) if kind != "queue" or move["queue"] == name]
    if moves:
        origins, targets = (sorted({move[end] for move in moves}) for end in ("from", "to"))
        points = format_count(sum(move["points"] for move in moves), "point")
        return f"moved {points} from {join_names(origins)} to {join_names(targets)}"
    if display.summed is not None:
        field, verb, noun = display.summed
        return f"{verb} {format_count(round(sum((entry.action or {}).get(field, 0) for entry in alike)), noun)}"
    return display.past(newest.action or {})
