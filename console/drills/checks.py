"""Checklists of the first drills: conditions on the snapshot that stay true once they are met."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from console.models import Drill
from controllers.framework.reason import format_count
from controllers.worker_rate.law import LAW as WORKER_RATE
from queues.nodes.node_state import OFFLINE
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry

MIN_RISE, EMPTY_SHARE = 3.0, 0.1


@dataclass(frozen=True)
class DrillEvidence:
    """The plant at the start of the drill and now, and the greatest backlog of its queue meanwhile."""

    drill: Drill
    before: Snapshot
    now: Snapshot
    most_waiting: int
    has_fault_ended: bool

    @property
    def queue(self) -> str:
        return str(self.drill.subjects.get("queue", ""))

    @property
    def node(self) -> str:
        return str(self.drill.subjects.get("node", ""))

    def count_waiting(self) -> int | None:
        row = self.now.queues.get(self.queue)
        return row.waiting_events if row else None


@dataclass(frozen=True)
class DrillCheck:
    """expected: the sentence before it is true; observe: the sentence with what was observed, once it is."""

    expected: str
    observe: Callable[[DrillEvidence], str | None]


def _observe_rise(evidence: DrillEvidence) -> str | None:
    before, now = evidence.before.totals.in_per_second or 0.0, evidence.now.totals.in_per_second or 0.0
    return (
        f"Incoming events rise from {before:,.0f} to {now:,.0f} events/s"
        if now >= MIN_RISE * max(before, 1.0)
        else None
    )


def _observe_start(evidence: DrillEvidence) -> str | None:
    totals = evidence.now.totals
    acted = _list_actions(evidence).exists()
    busy = f"{totals.workers_at_work or 0:.0f} of {totals.worker_slots or 0} slots busy"
    return f"The worker rate loops start workers: {busy}" if acted else None


def _list_actions(evidence: DrillEvidence) -> QuerySet[LedgerEntry]:
    entries = LedgerEntry.objects.filter(loop__law=WORKER_RATE.name, loop__target__queue=evidence.queue, acted=True)
    return entries.filter(at__gte=evidence.drill.started_at)


def _observe_empty(evidence: DrillEvidence) -> str | None:
    waiting = evidence.count_waiting()
    if not evidence.has_fault_ended or waiting is None or waiting > EMPTY_SHARE * evidence.most_waiting:
        return None
    return f"Queue {evidence.queue} is nearly empty again: {format_count(waiting, 'event')} waiting"


def _observe_full_slots(evidence: DrillEvidence) -> str | None:
    crowd, totals = evidence.now.crowd, evidence.now.totals
    if crowd is not None and crowd.queue == evidence.queue:
        others = f"; {', '.join(sorted(crowd.crowded))} wait" if crowd.crowded else ""
        return f"Queue {evidence.queue} uses all worker slots{others}"
    slots, row = totals.worker_slots or 0, evidence.now.queues.get(evidence.queue)
    is_full = slots and (totals.workers_at_work or 0.0) >= slots - 0.2
    return f"Queue {evidence.queue} fills the {slots} worker slots" if is_full and row and row.waiting_events else None


def _observe_late(evidence: DrillEvidence) -> str | None:
    row = evidence.now.queues.get(evidence.queue)
    waited = (row.oldest_seconds or 0.0) if row else 0.0
    said = f"Its oldest event has waited {waited:.0f} s although the worker rate loops act"
    return said if waited >= 20.0 else None


def _observe_right_action(evidence: DrillEvidence) -> str | None:
    return "You acted on the cause, and its fault ended" if evidence.drill.action_seconds is not None else None


def _observe_offline(evidence: DrillEvidence) -> str | None:
    row, began = evidence.now.nodes.get(evidence.node), evidence.drill.started_at
    if row is None or row.state != OFFLINE or began is None or evidence.now.at is None:
        return None
    return f"{evidence.node} is offline after {max(0.0, evidence.now.at - began.timestamp()):.0f} s"


def _observe_moved_points(evidence: DrillEvidence) -> str | None:
    before, now = evidence.before.nodes.get(evidence.node), evidence.now.nodes.get(evidence.node)
    if before is None or now is None or not before.points or now.points >= before.points:
        return None
    others = " and ".join(name for name in sorted(evidence.now.nodes) if name != evidence.node)
    return f"{before.points - now.points:,} of its {before.points:,} points moved to {others}"


def _observe_return(evidence: DrillEvidence) -> str | None:
    row = evidence.now.nodes.get(evidence.node)
    if not evidence.has_fault_ended or row is None or row.state in (None, OFFLINE):
        return None
    return f"{evidence.node} is back with its stored events"


CHECKS: Mapping[str, Sequence[DrillCheck]] = {
    "burst": (
        DrillCheck("Incoming events rise", _observe_rise),
        DrillCheck("The worker rate loops start workers", _observe_start),
        DrillCheck("Queue {queue} is nearly empty again", _observe_empty),
    ),
    "slow-handler": (
        DrillCheck("Queue {queue} uses all worker slots, and other queues are delayed", _observe_full_slots),
        DrillCheck("The worker rate loops act, but the wait still grows", _observe_late),
        DrillCheck("You press Pause consumption of {queue} on the overview", _observe_right_action),
    ),
    "node-lost": (
        DrillCheck("{node} is offline within 10 s", _observe_offline),
        DrillCheck("Its points (shares of new events) move to the other nodes", _observe_moved_points),
        DrillCheck("{node} is back, and no stored event is lost", _observe_return),
    ),
}


def update_checks(known: Mapping[str, str], evidence: DrillEvidence) -> dict[str, str]:
    """Return the observed sentences by place; what was true stays."""
    observed = dict(known)
    for place, check in enumerate(CHECKS.get(evidence.drill.scenario, ())):
        # In their order: a queue that is empty before the burst is no success.
        if str(place) in observed:
            continue
        sentence = check.observe(evidence)
        if sentence is None:
            break
        observed[str(place)] = sentence
    return observed
