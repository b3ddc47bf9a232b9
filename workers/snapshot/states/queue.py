"""The state of a queue: how long its oldest event waits, how late its events are, what it gave up."""

from collections.abc import Iterator

from controllers.framework.reason import counted
from workers.documents.queues import QueueStatus
from workers.documents.states import SubjectState
from workers.snapshot.states.judgement import Fault, Watched

FILLS_SECONDS = 30.0  # of arrivals: what waits beyond is more than a consumer takes at once


def queue_state(watched: Watched, name: str, queue: QueueStatus) -> SubjectState:
    """The state of one queue."""
    known = queue.waiting_events == 0 or None not in (queue.waiting_events, queue.wait_seconds)
    return watched.state("queue", name, list(_faults(watched, name, queue)), known=known)


def _faults(watched: Watched, name: str, queue: QueueStatus) -> Iterator[Fault]:
    wait, dead = queue.wait_seconds, queue.dead_letters
    late = "how long its oldest event has waited is not known now"
    if wait is not None:
        late = f"its oldest event has waited {wait:,.0f} s"
    behind = watched.fault("queue", name, "queue_wait", wait, f"Queue {name} falls behind: {late}.")
    yield from behind
    yield from _slow(watched, name, queue)
    held = f"Queue {name} holds {counted(dead or 0, 'dead letter')}."
    yield from watched.fault("queue", name, "dead_letters", dead, held)
    if queue.trouble:
        yield Fault("warning", f"Queue {name}: a worker ended early ({queue.trouble.rstrip('.')}).")
    if not behind and _fills(queue):
        yield Fault("notice", f"Queue {name} fills: {counted(queue.waiting_events or 0, 'event')} wait.")


def _slow(watched: Watched, name: str, queue: QueueStatus) -> Iterator[Fault]:
    """Nothing is handled while nothing comes: no latency then, and none that is too long."""
    latency = queue.latency_p95_seconds
    if latency is None:
        value, said = (None if queue.waiting_events else 0.0), "how long its events take is not known now"
    else:
        value, said = latency, f"5 % of its events take longer than {latency:,.0f} s"
    yield from watched.fault("queue", name, "queue_latency", value, f"Queue {name} is slow: {said}.")


def _fills(queue: QueueStatus) -> bool:
    """More comes than leaves, and more waits than came lately: nobody may call that keeping up."""
    waiting, arrivals = queue.waiting_events or 0, queue.in_per_second or 0.0
    return waiting > FILLS_SECONDS * max(arrivals, 1.0) or (queue.trend == "rising" and waiting > arrivals)
