"""Actions that end a cause or its impact.

Each states its effect, with a number where the measured values give one, and then what it can't do.
"""

import math
from collections.abc import Sequence

from common.stored_document import replace_fields
from controllers.concurrency.law import LAW as POOL_SIZE
from controllers.framework.reason import format_count, format_percent
from queues.pausing import CONSUMPTION, INTAKE
from workers.alerts.evaluation.impact import join_names
from workers.documents.loops import LoopStatus
from workers.documents.queues import PIPELINE_PRODUCER, PauseStatus, QueueStatus
from workers.documents.snapshot import Snapshot
from workers.documents.states import SuggestedAction
from workers.models import Loop
from workers.steering.scope import find_pause

RECENT_CHANGE_SECONDS = 3_600.0
MAX_ESTIMATE_SECONDS = 3_600.0
PIPELINE_START_SECONDS = 60.0  # from the order to the first batch


def suggest_pause(snapshot: Snapshot, queue: str, waiting: Sequence[str] = ()) -> list[SuggestedAction]:
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
    row = snapshot.queues[queue]
    if not row.in_per_second or find_pause(queue, INTAKE, snapshot) is not None:
        return []
    return [
        SuggestedAction(
            action="queue.pause",
            subject=f"queue/{queue}",
            value=INTAKE,
            words=f"Pause intake of {queue}",
            effect=f"Stops {row.in_per_second:,.1f} events/s. Producers have to keep these events. "
            f"{_describe_work_off(row)}",
        )
    ]


def _describe_work_off(row: QueueStatus) -> str:
    """Return how long the waiting events take at the present rate, or that none is processed."""
    waiting = row.waiting_events or 0
    if waiting and row.out_per_second == 0:
        return f"The backlog stays: none of the {format_count(waiting, 'waiting event')} is processed now."
    if not waiting or not row.out_per_second or waiting / row.out_per_second > MAX_ESTIMATE_SECONDS:
        return "Waiting events are still processed."
    takes = format_seconds(max(1.0, waiting / row.out_per_second))
    return f"{_capitalize_count(waiting)} still processed, in about {takes} at the current rate."


def _capitalize_count(events: int) -> str:
    return f"{events:,} waiting event{' is' if events == 1 else 's are'}"


def suggest_slot(snapshot: Snapshot, queue: str, waiting: Sequence[str] = ()) -> list[SuggestedAction]:
    """Suggest one more worker slot, and say for how many the queue has work; `waiting`: others that wait for a slot."""
    pools = [name for name, host in snapshot.hosts.items() if host.role == "jobs" and not host.drained]
    loops = [f"{POOL_SIZE.name}/{name}" for name in pools if f"{POOL_SIZE.name}/{name}" in snapshot.loops]
    if not loops:
        return []
    host = snapshot.hosts[loops[0].removeprefix(f"{POOL_SIZE.name}/")]
    slots = (snapshot.totals.worker_slots or 0) + 1
    effects = [f"The pool has {host.slots + 1} instead of {host.slots} slots."]
    wanted, seconds = compute_slots_wanted(snapshot, queue), estimate_catch_up_seconds(snapshot, [queue], slots)
    if wanted is not None:
        needs = f"Queue {queue} needs {format_count(wanted, 'slot')} for its arrivals"
        others = f", and {_name(waiting, 'q')} {'waits' if len(waiting) == 1 else 'wait'} again" if waiting else ""
        if wanted > slots:
            effects.append(f"{needs}, so it also fills the new slot{others}.")
        elif seconds is None:
            effects.append(f"{needs}, so its backlog hardly falls.")
        else:
            free = ", then other queues can use the new slot" if wanted < slots else ""
            effects.append(f"{needs}. Its backlog takes about {format_seconds(max(1.0, seconds))}{free}.")
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
    effects = ["Restores the handler options from before the last change."]
    if usual := row.usual_service_seconds:
        effects.append(f"One event took {format_seconds(usual)} before.")
        usually = replace_fields(snapshot, queues={queue: replace_fields(row, service_seconds=usual)})
        seconds = estimate_catch_up_seconds(usually, [queue])
        if seconds is not None and row.waiting_events:
            takes = format_seconds(max(1.0, seconds))
            effects.append(f"{format_count(row.waiting_events, 'waiting event')} then take about {takes}.")
    if row.dead_letters:
        effects.append(f"{format_count(row.dead_letters, 'dead letter')} still have to be requeued.")
    return [
        SuggestedAction(
            action="queue.define",
            subject=f"queue/{queue}",
            value="handler",
            words=f"Roll back the handler of {queue}",
            effect=" ".join(effects),
        )
    ]


def suggest_ending(override: int, words: str, effect: str) -> SuggestedAction:
    """Suggest to end an override, a pause, or a drain."""
    return SuggestedAction(action="override.end", subject=f"override/{override}", words=words, effect=effect)


def suggest_ending_pause(snapshot: Snapshot, queue: str, pause: PauseStatus) -> SuggestedAction:
    """Suggest to end a pause, and say what then happens to the events that wait."""
    row = snapshot.queues[queue]
    effects = [f"Its {pause.part} continues."]
    if pause.part == CONSUMPTION and row.waiting_events:
        seconds = estimate_catch_up_seconds(snapshot, [queue])
        takes = "" if seconds is None else f", in about {format_seconds(max(1.0, seconds))} with all worker slots"
        effects.append(f"{_capitalize_count(row.waiting_events)} processed{takes}.")
    return suggest_ending(pause.override, f"End the pause of {queue}", " ".join(effects))


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
        "Requeue, fix, or discard dead letters there. A requeued event fails again until its error is fixed.",
    )


def suggest_application_restart(snapshot: Snapshot, name: str) -> SuggestedAction:
    return SuggestedAction(
        action="pipeline.steer",
        subject=f"application/{name}",
        value="restart",
        words=f"Restart {name}",
        effect=f"{_describe_application_start(snapshot, name)} If an event or a rule makes the application fail, it "
        "fails again.",
    )


def suggest_start(snapshot: Snapshot, name: str) -> SuggestedAction:
    return SuggestedAction(
        action="pipeline.steer",
        subject=f"application/{name}",
        value="start",
        words=f"Start {name}",
        effect=_describe_application_start(snapshot, name),
    )


def _describe_application_start(snapshot: Snapshot, name: str) -> str:
    return describe_pipeline_start(snapshot, snapshot.pipeline.applications[name].queues)


def describe_pipeline_start(snapshot: Snapshot, queues: Sequence[str]) -> str:
    """Return how long the pipeline takes to continue, and how many events wait until then."""
    rows = [snapshot.queues[name] for name in queues if name in snapshot.queues]
    waiting = sum(row.waiting_events or 0 for row in rows)
    more = PIPELINE_START_SECONDS * sum(row.in_per_second or 0.0 for row in rows)
    parts = [format_count(waiting, "event")] if waiting else []
    parts += [f"about {more:,.0f} {'more ' if waiting else ''}that arrive"] if more >= 1 else []
    wait = f" Until then, {' and '.join(parts)} wait." if parts else ""
    return f"Continues from the last checkpoint within about {PIPELINE_START_SECONDS:.0f} s.{wait}"


def suggest_relief(snapshot: Snapshot, node: str, hot_key: str | None) -> SuggestedAction:
    """Suggest a plan that relieves a busy node; `hot_key`: of most events of its fullest queue."""
    row = snapshot.nodes[node]
    effects = ["Proposes a plan that you approve."]
    if row.utilisation and row.points and row.utilisation > row.busy:
        # A node's load falls in proportion to its points, as the planner assumes.
        points = math.ceil(round(row.points * (1 - row.busy / row.utilisation), 6))
        limit = format_percent(row.busy)
        effects.append(
            f"To get below {limit}, {node} has to give about {points:,} of its {format_count(row.points, 'point')} to "
            "nodes with free capacity."
        )
    if hot_key is not None:
        effects.append(f"A plan can't divide the key {hot_key}: all of its events stay on one node.")
    return SuggestedAction(
        action="plan.propose",
        subject=f"node/{node}",
        value="below-busy",
        words="Relieve busy nodes",
        effect=" ".join(effects),
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


def suggest_ending_holds(snapshot: Snapshot, queue: str, loops: Sequence[str]) -> list[SuggestedAction]:
    """Suggest to end what holds these loops of a queue: their override, or their own mode."""
    seconds, waiting = estimate_catch_up_seconds(snapshot, [queue]), snapshot.queues[queue].waiting_events or 0
    takes = "" if seconds is None else f" in about {format_seconds(max(1.0, seconds))} with all worker slots"
    then = f" {_capitalize_count(waiting)} then processed{takes}." if waiting else ""
    first: LoopStatus = snapshot.loops[loops[0]]
    for row in snapshot.overrides:
        if row.name == "mode" and (row.loop == loops[0] or (row.loop is None and _covers(row, first))):
            effect = f"The loops of {row.scope or row.loop} start workers again within seconds.{then}"
            return [suggest_ending(row.id, "End the hold", effect)]
    return [
        SuggestedAction(
            action="loop.mode",
            subject=f"loop/{loops[0]}",
            value=Loop.Mode.AUTO.value,
            words="Set the loop to auto",
            effect=f"The loop starts workers again within seconds.{then}",
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


def estimate_catch_up_seconds(snapshot: Snapshot, queues: Sequence[str], slots: int | None = None) -> float | None:
    """Return how long these queues take to work off their backlog with all slots: Σ w s / (slots - Σ λ s).

    slots: None for those of the plant. None if the time per event of one of them is unknown, or if they would not catch
    up.
    """
    work, arriving = 0.0, 0.0
    for name in queues:
        row = snapshot.queues[name]
        service = row.service_seconds or row.usual_service_seconds
        if service is None or row.waiting_events is None:
            return None
        work += row.waiting_events * service
        arriving += (row.in_per_second or 0.0) * service
    free = (slots if slots is not None else snapshot.totals.worker_slots or 0) - arriving
    seconds = work / free if free > 0 else math.inf
    return seconds if seconds <= MAX_ESTIMATE_SECONDS else None


def format_seconds(seconds: float) -> str:
    """Return a time in a unit that people read: 0.36 s, 2.9 s, 41 s, 3 min."""
    if seconds < 0.01:
        return f"{1_000 * seconds:.1f} ms" if seconds > 0 else "0 s"
    if seconds < 10:
        return f"{seconds:.2g} s"
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"


def _name(queues: Sequence[str], initial: str = "Q") -> str:
    return f"{initial}ueue{'' if len(queues) == 1 else 's'} {join_names(queues)}"
