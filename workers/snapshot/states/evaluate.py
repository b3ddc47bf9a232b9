"""All states of a snapshot, from the states of the previous second. This is pure, so it can be repeated."""

from collections.abc import Collection, Iterator, Mapping

from controllers.framework.reason import format_percent
from queues.nodes.node_state import OFFLINE
from workers.documents.snapshot import Snapshot
from workers.documents.states import SubjectState
from workers.snapshot.states.host import iterate_host_states
from workers.snapshot.states.judgement import Fault, WatchedSnapshot
from workers.snapshot.states.limits import SHIPPED, Limits
from workers.snapshot.states.loop import build_loop_state
from workers.snapshot.states.node import build_node_state
from workers.snapshot.states.pipeline import iterate_pipeline_states
from workers.snapshot.states.queue import queue_state
from workers.steering import scope

NOTHING_BEFORE: Mapping[str, SubjectState] = {}
NOTHING_UNREADABLE: Mapping[str, str] = {}


def evaluate_states(
    snapshot: Snapshot,
    before: Mapping[str, SubjectState] = NOTHING_BEFORE,
    limits: Limits = SHIPPED,
    listed: Collection[str] | None = None,
    unreadable: Mapping[str, str] = NOTHING_UNREADABLE,
) -> dict[str, SubjectState]:
    """Return the states by "kind/name".

    Between the two thresholds of a rule, a state stays as it was in `before`. listed: as in `WatchedSnapshot`.
    """
    watched = WatchedSnapshot(snapshot, before, limits, snapshot.at or 0.0, listed, unreadable)
    return {f"{state.kind}/{state.name}": state for state in _iterate_states(watched)}


def get_states(snapshot: Snapshot) -> Mapping[str, SubjectState]:
    """Return the published states of a snapshot.

    For an archived one without states, they are evaluated without a past.
    """
    return snapshot.states or evaluate_states(snapshot)


def _iterate_states(watched: WatchedSnapshot) -> Iterator[SubjectState]:
    snapshot = watched.snapshot
    yield from _iterate_plant_states(watched)
    yield from (build_node_state(watched, *item) for item in snapshot.nodes.items())
    yield from (queue_state(watched, *item) for item in snapshot.queues.items())
    yield from iterate_pipeline_states(watched)
    yield from iterate_host_states(watched)
    yield from (build_loop_state(watched, *item) for item in snapshot.loops.items())


def _iterate_plant_states(watched: WatchedSnapshot) -> Iterator[SubjectState]:
    """Return the states of the whole plant."""
    snapshot = watched.snapshot
    if not snapshot.nodes:
        fault = Fault("critical", "No node is configured yet.")
        yield watched.get_state("plant", "nodes", [fault], sign=OFFLINE)
    slots = snapshot.totals.worker_slots
    if any(queue.kind == "jobs" for queue in snapshot.queues.values()) and slots is not None:
        missing = f"No workers process events of the jobs queues: {scope.explain_no_slots(snapshot)}."
        yield watched.get_state(
            "plant", "workers", watched.find_faults("plant", "workers", "workers_missing", slots, missing, {})
        )
    share = snapshot.totals.shed_share
    if share is not None:
        lost = f"Events are shed: {format_percent(share, 2)} of the events that patterns could use."
        faults = watched.find_faults("plant", "shedding", "shedding", 100 * share, lost, {})
        yield watched.get_state("plant", "shedding", faults)
