"""The state of a worker host: whether it reports, and whether its pool is as it was set."""

from collections.abc import Iterator

from queues.nodes.node_state import OFFLINE
from workers.alerts.evaluation.impact import FIRST_STEPS
from workers.documents.hosts import HostStatus
from workers.documents.states import SubjectState
from workers.snapshot.states.judgement import Fault, Watched

MOST_CLOCK_SECONDS = 60.0
GONE_SECONDS = 300.0  # a host that reports no longer is named for so long; then it has left


def host_states(watched: Watched) -> Iterator[SubjectState]:
    """Hosts that report, and those that did until lately."""
    hosts = watched.snapshot.hosts
    for name, host in hosts.items():
        yield _state(watched, name, host)
    for before in watched.before.values():
        if before.kind == "host" and before.name not in hosts and (silent := _silent(watched, before)):
            yield silent


def _state(watched: Watched, name: str, host: HostStatus) -> SubjectState:
    trouble = host.trouble or ""
    sentence = f"The pool of {name} is not as it was set: {trouble.rstrip('.')}."
    faults = watched.fault("host", name, "pool_refuses", 1.0 if trouble else 0.0, sentence)
    return watched.state("host", name, [*faults, *_clock(name, host.ahead_seconds or 0.0)])


def _clock(name: str, ahead_seconds: float) -> Iterator[Fault]:
    """A clock that is off: what the host writes has a wrong time, and what it times comes early or late."""
    if abs(ahead_seconds) > MOST_CLOCK_SECONDS:
        side = "ahead of" if ahead_seconds > 0 else "behind"
        sentence = f"The clock of {name} is {abs(ahead_seconds):.0f} s {side} the control server's."
        yield Fault("warning", sentence, "Have both hosts take their time from NTP (chrony, timesyncd).")


def _silent(watched: Watched, before: SubjectState) -> SubjectState | None:
    name = before.name
    fault = Fault("warning", f"Worker host {name} has stopped reporting.", FIRST_STEPS["workers_missing"])
    state = watched.state("host", name, [fault], sign=OFFLINE, word="Not reporting", stale=True)
    return None if watched.at - (state.since or watched.at) > GONE_SECONDS else state
