"""The state of a worker host: whether it reports, and whether its pool is as set."""

from collections.abc import Iterator

from queues.nodes.node_state import OFFLINE
from workers.alerts.evaluation.impact import describe_first_step
from workers.documents.hosts import HostStatus, parse_role
from workers.documents.states import SubjectState
from workers.snapshot.states.clock import clock_fault
from workers.snapshot.states.judgement import Fault, WatchedSnapshot

GONE_SECONDS = 300.0  # a host that stopped reporting is listed for this time, then counts as having left


def iterate_host_states(watched: WatchedSnapshot) -> Iterator[SubjectState]:
    """Return the states of hosts that report or reported until recently."""
    hosts = watched.snapshot.hosts
    for name, host in hosts.items():
        yield _build_state(watched, name, host)
    for name, reason in watched.unreadable.items():
        yield _build_unreadable_state(watched, name, reason)
    for before in watched.before.values():
        is_shown = before.name in hosts or before.name in watched.unreadable
        if before.kind == "host" and not is_shown and (silent := _build_silent_state(watched, before)):
            yield silent


def _build_unreadable_state(watched: WatchedSnapshot, name: str, reason: str) -> SubjectState:
    fault = Fault(
        "warning",
        f"The report of worker host {name} can't be read ({reason}).",
        "Run the host with the same version of Weir as the console.",
    )
    return watched.get_state("host", name, [fault], sign=OFFLINE, word="Unreadable", stale=True)


def _build_state(watched: WatchedSnapshot, name: str, host: HostStatus) -> SubjectState:
    trouble = host.trouble or ""
    sentence = f"The pool of {name} differs from its setting: {trouble.rstrip('.')}."
    faults = watched.find_faults("host", name, "pool_refuses", 1.0 if trouble else 0.0, sentence)
    return watched.get_state("host", name, [*faults, *clock_fault(name, host.ahead_seconds or 0.0)])


def _build_silent_state(watched: WatchedSnapshot, before: SubjectState) -> SubjectState | None:
    """Return the state of a silent host; None for one that reported its end.

    A worker that is stopped does so.
    """
    name = before.name
    if watched.listed is not None and name not in watched.listed:
        return None
    role = parse_role(name)
    step = describe_first_step("workers_missing") if role == "jobs" else f"Start a worker host of role {role}."
    fault = Fault("warning", f"Worker host {name} has stopped reporting.", step)
    state = watched.get_state("host", name, [fault], sign=OFFLINE, word="Not reporting", stale=True)
    return None if watched.at - (state.since or watched.at) > GONE_SECONDS else state
