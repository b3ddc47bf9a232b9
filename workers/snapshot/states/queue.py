"""The state of a queue: the wait of its oldest event, its latency, and its dead letters."""

from collections.abc import Iterator

from controllers.framework.reason import are, capitalize, format_count, format_names
from queues.pausing import CONSUMPTION
from workers.documents.queues import QueueStatus
from workers.documents.states import SubjectState
from workers.snapshot.states.judgement import Fault, WatchedSnapshot
from workers.steering.scope import find_pause, pause_in_words

FILLS_SECONDS = 30.0  # of arrivals: a larger backlog is more than a consumer takes at once


def queue_state(watched: WatchedSnapshot, name: str, queue: QueueStatus) -> SubjectState:
    """Return the state of one queue."""
    known = queue.waiting_events == 0 or None not in (queue.waiting_events, queue.wait_seconds)
    return watched.get_state("queue", name, list(_iterate_faults(watched, name, queue)), known=known)


def _iterate_faults(watched: WatchedSnapshot, name: str, queue: QueueStatus) -> Iterator[Fault]:
    dead = queue.dead_letters
    behind = watched.find_faults("queue", name, "queue_wait", queue.wait_seconds, _find_delay(watched, name, queue))
    late = [*behind, *_iterate_latency_faults(watched, name, queue)]
    pause = find_pause(name, CONSUMPTION, watched.snapshot)
    if pause is None:
        yield from late
    elif late:
        # A person has paused it: that it stands still is no fault and needs no remedy.
        rules = tuple(rule for fault in late for rule in fault.rules)
        yield Fault("notice", f"{pause_in_words(name, pause)} {capitalize(_measure_wait(queue))}.", rules=rules)
    held = f"Queue {name} has {format_count(dead or 0, 'dead letter')}."
    yield from watched.find_faults("queue", name, "dead_letters", dead, held)
    if queue.trouble:
        yield Fault("warning", f"Queue {name}: a worker ended early ({queue.trouble.rstrip('.')}).")
    if not behind and _is_filling(queue):
        yield Fault("notice", f"Queue {name} is filling: {format_count(queue.waiting_events or 0, 'event')} waiting.")


def _find_delay(watched: WatchedSnapshot, name: str, queue: QueueStatus) -> str:
    said = f"Queue {name} falls behind: {_measure_wait(queue)}"
    applications = watched.snapshot.pipeline.applications.items()
    readers = {each: row.state for each, row in applications if name in row.queues}
    if set(readers.values()) == {"stopped"}:
        names = list(readers)
        said += f"; its application{'s' if len(names) > 1 else ''} {format_names(names)} {are(names)} stopped"
    return f"{said}."


def _measure_wait(queue: QueueStatus) -> str:
    if queue.wait_seconds is None:
        return "the wait of its oldest event is unknown"
    return f"its oldest event has waited {queue.wait_seconds:,.0f} s"


def _iterate_latency_faults(watched: WatchedSnapshot, name: str, queue: QueueStatus) -> Iterator[Fault]:
    """Return the fault of a high latency; without completions there is no latency."""
    latency = queue.latency_p95_seconds
    if latency is None:
        value, said = (None if queue.waiting_events else 0.0), "latency unknown"
    else:
        value, said = latency, f"p95 latency {latency:,.0f} s"
    yield from watched.find_faults("queue", name, "queue_latency", value, f"Queue {name} is slow: {said}.")


def _is_filling(queue: QueueStatus) -> bool:
    """Return whether arrivals exceed output and the backlog exceeds recent arrivals.

    Such a queue does not keep up.
    """
    waiting, arrivals = queue.waiting_events or 0, queue.in_per_second or 0.0
    return waiting > FILLS_SECONDS * max(arrivals, 1.0) or (queue.trend == "rising" and waiting > arrivals)
