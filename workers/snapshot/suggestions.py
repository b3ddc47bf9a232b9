"""Actions that end a cause or its impact, each with its effect, computed from measured values."""

import math
from collections.abc import Sequence

from controllers.concurrency.law import LAW as POOL_SIZE
from controllers.framework.reason import format_count
from queues.pausing import CONSUMPTION, INTAKE
from workers.alerts.evaluation.impact import join_names
from workers.documents.loops import LoopStatus
from workers.documents.queues import PIPELINE_PRODUCER
from workers.documents.snapshot import Snapshot
from workers.documents.states import SuggestedAction
from workers.models import Loop
from workers.steering.scope import find_pause

RECENT_CHANGE_SECONDS = 3_600.0
MAX_ESTIMATE_SECONDS = 3_600.0


def suggest_pause(snapshot: Snapshot, queue: str, waiting: Sequence[str]) -> list[SuggestedAction]:
    """Suggest to pause the consumption of a queue; `waiting`: the queues that then get its worker slots."""
    row = snapshot.queues[queue]
    if find_pause(queue, CONSUMPTION, snapshot) is not None:
        return []
    effects = []
    if waiting:
        takes = f" (one event takes {format_seconds(row.service_seconds)})" if row.service_seconds else ""
        effects.append(f"Frees the worker slots when the workers of {queue} finish their current block{takes}.")
        seconds = estimate_catch_up_seconds(snapshot, waiting)
        soon = "" if seconds is None else f" in about {format_seconds(max(1.0, seconds))}"
        effects.append(f"{_name(waiting)} then catch{'es' if len(waiting) == 1 else ''} up{soon}.")
    else:
        effects.append(f"No event of {queue} is processed until the pause ends.")
    arriving = row.in_per_second
    effects.append(f"Events of {queue} wait{f': {arriving:,.1f}/s arrive' if arriving else ''}.")
    return [
        SuggestedAction(
            action="queue.pause",
            subject=f"queue/{queue}",
            value=CONSUMPTION,
            words=f"Pause consumption of {queue}",
            effect=" ".join(effects),
        )
    ]


def suggest_intake_pause(snapshot: Snapshot, queue: str) -> list[SuggestedAction]:
    """Suggest to pause the intake of a queue, if events arrive."""
    arriving = snapshot.queues[queue].in_per_second
    if not arriving or find_pause(queue, INTAKE, snapshot) is not None:
        return []
    return [
        SuggestedAction(
            action="queue.pause",
            subject=f"queue/{queue}",
            value=INTAKE,
            words=f"Pause intake of {queue}",
            effect=f"Stops {arriving:,.1f} events/s. Producers have to keep these events. "
            "Waiting events are still processed.",
        )
    ]


def suggest_slot(snapshot: Snapshot, queue: str) -> list[SuggestedAction]:
    """Suggest one more worker slot, and say for how many the queue would have work."""
    pools = [name for name, host in snapshot.hosts.items() if host.role == "jobs" and not host.drained]
    loops = [f"{POOL_SIZE.name}/{name}" for name in pools if f"{POOL_SIZE.name}/{name}" in snapshot.loops]
    if not loops:
        return []
    host = snapshot.hosts[loops[0].removeprefix(f"{POOL_SIZE.name}/")]
    slots = snapshot.totals.worker_slots or 0
    effects = [f"The pool has {host.slots + 1} instead of {host.slots} slots."]
    wanted = compute_slots_wanted(snapshot, queue)
    if wanted is not None:
        fills = "so it also fills the new slot" if wanted > slots else "so the other queues can use the new slot"
        effects.append(f"Queue {queue} needs {wanted} {'slot' if wanted == 1 else 'slots'} for its arrivals, {fills}.")
    return [
        SuggestedAction(
            action="loop.mode",
            subject=f"loop/{loops[0]}",
            value=str(host.slots + 1),
            words="Add 1 worker slot",
            effect=" ".join(effects),
        )
    ]


def suggest_rollback(snapshot: Snapshot, queue: str) -> list[SuggestedAction]:
    """Suggest the previous handler of a queue, if its handler or options changed lately."""
    row, now = snapshot.queues[queue], snapshot.at or 0.0
    if row.handler_changed_at is None or not 0.0 <= now - row.handler_changed_at <= RECENT_CHANGE_SECONDS:
        return []
    usual = row.usual_service_seconds
    before = f" One event took {format_seconds(usual)} before." if usual else ""
    return [
        SuggestedAction(
            action="queue.define",
            subject=f"queue/{queue}",
            value="handler",
            words=f"Roll back the handler of {queue}",
            effect=f"Restores the handler options from before the last change.{before}",
        )
    ]


def suggest_ending(override: int, words: str, effect: str) -> SuggestedAction:
    """Suggest to end an override, a pause, or a drain."""
    return SuggestedAction(action="override.end", subject=f"override/{override}", words=words, effect=effect)


def suggest_restart(process: str, effect: str) -> SuggestedAction:
    """Suggest to restart a process of this host; a suspended process is killed first."""
    return SuggestedAction(
        action="process.restart", subject=f"process/{process}", words=f"Restart {process}", effect=effect
    )


def suggest_dead_letters(queue: str, count: int) -> SuggestedAction:
    """Suggest to look at the dead letters of a queue."""
    return SuggestedAction(
        action="dead_letters.requeue",
        subject=f"queue/{queue}",
        words=f"Open the dead letters of {queue}",
        effect=f"Shows {format_count(count, 'dead letter')} with the error of each. "
        "Requeue, fix, or discard dead letters there.",
    )


def suggest_application_restart(name: str) -> SuggestedAction:
    return SuggestedAction(
        action="pipeline.steer",
        subject=f"application/{name}",
        value="restart",
        words=f"Restart {name}",
        effect="The application continues from its last checkpoint within about a minute. Its events wait until then.",
    )


def suggest_start(name: str) -> SuggestedAction:
    return SuggestedAction(
        action="pipeline.steer",
        subject=f"application/{name}",
        value="start",
        words=f"Start {name}",
        effect="The application continues from its last checkpoint within about a minute.",
    )


def suggest_declaration(name: str, words: str, effect: str) -> SuggestedAction:
    return SuggestedAction(action="pipeline.declare", subject=f"application/{name}", words=words, effect=effect)


def suggest_producer_remedy(snapshot: Snapshot, producer: str) -> list[SuggestedAction]:
    """Suggest the previous declaration if the producer is an application."""
    name = producer.removeprefix(PIPELINE_PRODUCER)
    if name == producer or name not in snapshot.pipeline.applications:
        return []
    effect = (
        f"Opens the declaration of {name}. After you restore an earlier version, {name} emits events as it did then."
    )
    return [suggest_declaration(name, f"Restore the declaration of {name}", effect)]


def suggest_ending_holds(snapshot: Snapshot, loops: Sequence[str]) -> list[SuggestedAction]:
    """Suggest to end what holds these loops: their override, or their own mode."""
    first: LoopStatus = snapshot.loops[loops[0]]
    for row in snapshot.overrides:
        if row.name == "mode" and (row.loop == loops[0] or (row.loop is None and _covers(row, first))):
            effect = f"The loops of {row.scope or row.loop} start workers again within seconds."
            return [suggest_ending(row.id, "End the hold", effect)]
    return [
        SuggestedAction(
            action="loop.mode",
            subject=f"loop/{loops[0]}",
            value=Loop.Mode.AUTO.value,
            words="Set the loop to auto",
            effect="The loop starts workers again within seconds.",
        )
    ]


def _covers(row: object, loop: LoopStatus) -> bool:
    wanted = {"law": loop.law, "queue": loop.target.get("queue"), "node": loop.target.get("node")}
    return all(getattr(row, name) in (None, "", value) for name, value in wanted.items())


def compute_slots_wanted(snapshot: Snapshot, queue: str) -> int | None:
    """Return how many slots the arrivals of a queue keep busy: ⌈λ s⌉; None while one of them is unknown."""
    row = snapshot.queues[queue]
    if row.in_per_second is None or not row.service_seconds:
        return None
    return math.ceil(row.in_per_second * row.service_seconds)


def estimate_catch_up_seconds(snapshot: Snapshot, queues: Sequence[str]) -> float | None:
    """Return how long these queues take to work off their backlog with all slots: Σ w s / (slots - Σ λ s).

    None if the time per event of one of them is unknown, or if they would not catch up.
    """
    work, arriving = 0.0, 0.0
    for name in queues:
        row = snapshot.queues[name]
        service = row.service_seconds or row.usual_service_seconds
        if service is None or row.waiting_events is None:
            return None
        work += row.waiting_events * service
        arriving += (row.in_per_second or 0.0) * service
    free = (snapshot.totals.worker_slots or 0) - arriving
    seconds = work / free if free > 0 else math.inf
    return seconds if seconds <= MAX_ESTIMATE_SECONDS else None


def format_seconds(seconds: float) -> str:
    """Return a time in a unit that people read: 0.36 s, 2.9 s, 41 s, 3 min."""
    if seconds < 0.01:
        return f"{1_000 * seconds:.1f} ms" if seconds > 0 else "0 s"
    if seconds < 10:
        return f"{seconds:.2g} s"
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"


def _name(queues: Sequence[str]) -> str:
    return f"{'Queue' if len(queues) == 1 else 'Queues'} {join_names(queues)}"
