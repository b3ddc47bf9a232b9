"""Causes at a queue: who holds the worker slots, pauses, events that fail, slow handlers, and bursts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from controllers.flow.admission import LAW as FLOW
from controllers.framework.reason import are, format_count, format_percent
from controllers.worker_rate.law import LAW as WORKER_RATE
from queues.pausing import CONSUMPTION, INTAKE
from workers.alerts.evaluation.impact import join_names
from workers.documents.queues import PauseStatus, QueueStatus
from workers.documents.snapshot import Snapshot
from workers.documents.states import Severity, SuggestedAction
from workers.models import Loop
from workers.snapshot import suggestions
from workers.snapshot.destinations import describe_failing, describe_failures, describe_waiting_plans, is_failing
from workers.snapshot.scene import (
    CLEARLY_SLOWER,
    DEAD_LETTERS,
    Cause,
    Scene,
    compute_slowdown,
    describe_backlog,
    describe_clearing,
    describe_producer,
    describe_slots,
    find_dominant_producer,
    find_hot_key,
    format_coarse,
    format_waiting,
    is_slow,
    join_sentences,
    shorten_error,
)
from workers.snapshot.suggestions import format_seconds
from workers.steering import scope
from workers.steering.scope import find_pause

MIN_FAILING_SHARE = 0.5  # of the events that leave: from here on, it is said of all
BURST_OVER_SECONDS = 5.0  # arrivals vary around the limit of what is unusual
BURST_SECONDS = 600.0  # a backlog is due to a burst for this time after it


def _find_pauses(scene: Scene) -> Iterator[Cause]:
    """Find paused queues: that one waits, or that nothing arrives, is on purpose."""
    for name, row in scene.snapshot.queues.items():
        # A paused intake does not explain that waiting events are handled late.
        parts = [CONSUMPTION] if scene.is_late(name) else [CONSUMPTION, INTAKE]
        pause = next((found for part in parts if (found := find_pause(name, part, scene.snapshot))), None)
        if pause is None:
            continue
        waits = f"{format_waiting(row.waiting_events)}."
        impact = waits if pause.part == CONSUMPTION else "Producers have to keep their events."
        impact = f"{impact} Reason: {pause.reason.rstrip('.')}." if pause.reason else impact
        end = suggestions.suggest_ending_pause(scene.snapshot, name, pause)
        yield Cause(
            f"queue/{name}", describe_pause(name, pause), impact, tuple(scene.list_loops(queue=name)), (end,), "notice"
        )


def describe_pause(queue: str, pause: PauseStatus) -> str:
    """Return who has paused which part of a queue until when, as a sentence."""
    end = "without expiry"
    if pause.until is not None:
        end = f"until {datetime.fromtimestamp(pause.until, UTC):%H:%M} UTC"
    by = f" by {pause.by}" if pause.by else ""
    return f"Queue {queue} is paused ({pause.part}){by} {end}."


def _find_failing_destinations(scene: Scene) -> Iterator[Cause]:
    """Find destinations that fail calls of handlers: their queues wait for the retry budget or the circuit breaker."""
    for name, row in scene.snapshot.destinations.items():
        queues = [queue for queue in row.queues if queue in scene.snapshot.queues]
        waiting = [queue for queue in queues if scene.snapshot.queues[queue].waiting_events]
        if not queues or not is_failing(row, bool(waiting or row.retry_plans), scene.snapshot.at or 0.0):
            continue
        waits = ""
        if waiting:
            noun, verb = ("queue", "waits") if len(waiting) == 1 else ("queues", "wait")
            waits = f"{noun} {join_names(sorted(waiting))} {verb} for it"
        impact = join_sentences(describe_failures(row), waits, describe_waiting_plans(row))
        first, *others = sorted(queues, key=lambda queue: (not scene.has_backlog_problem(queue), queue))
        loops = [subject for queue in queues for subject in scene.list_loops(queue=queue)]
        affected = (*(f"queue/{queue}" for queue in others), *loops)
        is_late = any(scene.is_critical(f"queue/{queue}") for queue in queues)
        yield Cause(
            f"queue/{first}",
            describe_failing(name, row),
            impact,
            affected,
            severity="critical" if is_late else "warning",
            is_independent=True,
        )


def _find_slot_holder(scene: Scene) -> Iterator[Cause]:
    """Find the queue whose workers hold the worker slots, so that those of others can't start."""
    snapshot, crowd = scene.snapshot, scene.snapshot.crowd
    if crowd is None or not crowd.active or crowd.queue not in snapshot.queues:
        return
    name, row = crowd.queue, snapshot.queues[crowd.queue]
    if row.catching_up is not None:
        return  # Others wait until it has caught up, which ends by itself.
    victims = [queue for queue in scene.list_troubled_queues("jobs") if crowd.crowded.get(queue) == name]
    is_late = any(scene.is_late(queue) for queue in (name, *victims))
    is_early = not is_late and any(scene.waits_noticeably(queue) for queue in (name, *victims))
    if not (is_late or is_early) or find_pause(name, CONSUMPTION, snapshot):
        return
    slots = snapshot.totals.worker_slots or 0
    hold = f"holds {describe_slots(slots, crowd.holds_all)}"
    burst = _is_burst(scene, name)
    slower = _find_slowdown(row, burst)
    slow = slower is not None or (is_slow(row) and not burst)
    producer = find_dominant_producer(snapshot, name)
    remedy = suggestions.suggest_producer_remedy(snapshot, producer) if producer else []
    # If an application sends the events, their key is not the cause.
    hot = None if remedy else find_hot_key(snapshot, name)
    if slower is not None:
        sentence = f"The handler of queue {name} became {slower}× slower and {hold}."
    elif slow:
        sentence = f"Queue {name} {hold}: its handler takes {format_coarse(row.service_seconds or 0.0)} per event."
    elif row.service_seconds is None and not row.out_per_second:
        sentence = f"Queue {name} {hold} and finishes no event."
    elif hot:
        sentence = f"Queue {name} {hold}: most of its events have the key {hot}."
    elif burst:
        sentence = f"{_describe_burst(snapshot, name)} {hold}."
    else:
        sentence = f"Queue {name} {hold}."
    named = [queue for queue in victims if scene.is_late(queue) or scene.waits_noticeably(queue)]
    can = "can't get a slot" if crowd.holds_all else "rarely get a slot" if len(named) > 1 else "rarely gets a slot"
    parts = []
    if named:
        waits = scene.describe_waits(named, ("its oldest event waits", "their oldest events wait"))
        queues = f"{'Queue' if len(named) == 1 else 'Queues'} {join_names(named)}"
        parts.append(f"{queues} {can}: {waits}" if waits else f"{queues} {can}")
    parts += [scene.describe_waits([name]), _describe_service(row)]
    rollback = suggestions.suggest_rollback(snapshot, name)
    pause = suggestions.suggest_pause(snapshot, name, victims)
    slot = suggestions.suggest_slot(snapshot, name, victims)
    if row.service_seconds is None and not row.out_per_second:
        restart = suggestions.suggest_restart(
            "worker-jobs",
            f"Ends {format_count(slots, 'running worker')}. Their events return to their queues. "
            "If an event hangs again, it holds its slot again.",
        )
        actions = [*pause, restart, *rollback, *slot]
    elif slow or not (burst or hot):
        actions = [*(pause if victims or slow else []), *slot, *rollback]
    else:
        intake = suggestions.suggest_intake_pause(snapshot, name)
        protect = pause if victims else []
        # More capacity rarely helps against a hot key: its producer has to stop.
        few = [*intake, *slot] if _needs_more_slots(snapshot, name) else [*slot, *intake]
        actions = [*intake, *protect, *slot] if hot else [*remedy, *few[:1], *protect, *few[1:]]
    loops = [subject for queue in (name, *victims) for subject in scene.list_loops(queue=queue)]
    affected = (*(f"queue/{queue}" for queue in victims), *loops)
    severity: Severity | None = "warning" if is_early else None
    impact = join_sentences(*parts)
    yield Cause(f"queue/{name}", sentence, impact, affected, tuple(actions), severity, is_independent=slow)


def _describe_service(row: QueueStatus) -> str:
    """Return how long an event of a slow handler takes, and usually took; "" for others."""
    if not is_slow(row):
        return ""
    slower = compute_slowdown(row) is not None and row.usual_service_seconds
    usual = f" instead of {format_seconds(row.usual_service_seconds or 0.0)}" if slower else ""
    return f"one event takes {format_seconds(row.service_seconds or 0.0)}{usual}"


def _find_poison(scene: Scene) -> Iterator[Cause]:
    """Find queues whose events fail on every attempt now."""
    for name, row in scene.snapshot.queues.items():
        rate = sum(part.dead_per_second or 0.0 for part in row.containers.values())
        if rate <= 0 or not scene.has_dead_letters(name):
            continue
        letters = format_count(row.dead_letters or 0, "dead letter")
        # What leaves a queue includes the events that were given up.
        share = rate / max(row.out_per_second or 0.0, rate)
        with_error = f" with “{error}”" if (error := find_newest_error(row)) else ""
        impact = join_sentences(
            f"{format_percent(share, 0 if share >= 0.01 else 2)} of its events fail{with_error}",
            f"{letters}, {rate:,.1f}/s more; they stay unprocessed until you requeue or discard them",
        )
        actions = [
            suggestions.suggest_dead_letters(name, row.dead_letters or 0),
            *suggestions.suggest_pause(scene.snapshot, name, ()),
            *suggestions.suggest_rollback(scene.snapshot, name),
        ]
        loops = tuple(scene.list_loops(queue=name))
        replaced = (describe_backlog(name, DEAD_LETTERS),)
        some = "Events" if share >= MIN_FAILING_SHARE else "Some events"
        sentence = f"{some} of queue {name} fail on every attempt."
        yield Cause(f"queue/{name}", sentence, impact, loops, tuple(actions), replaces=replaced, is_independent=True)


def find_newest_error(row: QueueStatus) -> str:
    """Return the error of the newest dead letter in one short line, from the node where the most events fail."""
    parts = sorted(row.containers.values(), key=lambda part: -(part.dead_per_second or 0.0))
    return shorten_error(next((part.dead_error for part in parts if part.dead_error), ""))


def _find_dead_letters(scene: Scene) -> Iterator[Cause]:
    """Find queues whose events have failed earlier and wait for a person."""
    for name, row in scene.snapshot.queues.items():
        if scene.has_dead_letters(name):
            dead = row.dead_letters or 0
            verb, them = ("stays", "it") if dead == 1 else ("stay", "them")
            error = find_newest_error(row)
            impact = join_sentences(
                f"{format_count(dead, 'event')} {verb} unprocessed until you requeue or discard {them}",
                f"the newest dead letter failed with “{error}”" if error else "",
            )
            sentence = describe_backlog(name, DEAD_LETTERS)
            yield Cause(f"queue/{name}", sentence, impact, (), (suggestions.suggest_dead_letters(name, dead),))


def _find_late_queues(scene: Scene) -> Iterator[Cause]:
    """Find queues that are late or fill, for a reason of their own."""
    for name in scene.list_troubled_queues():
        row = scene.snapshot.queues[name]
        if row.catching_up is not None:
            waits = format_waiting(row.waiting_events)
            impact = join_sentences(f"{waits}; {end}" if (end := describe_clearing(row)) else waits)
            sentence = f"Queue {name} catches up after {row.catching_up.after}."
            yield Cause(f"queue/{name}", sentence, impact, tuple(scene.list_loops(queue=name)), (), "notice")
        elif row.kind == "pipeline":
            yield _describe_late_input(scene, name)
        else:
            yield _describe_late_jobs(scene, name, row)


def _describe_late_input(scene: Scene, name: str) -> Cause:
    """Describe a late queue of the pipeline."""
    snapshot = scene.snapshot
    readers = {reader: row for reader, row in snapshot.pipeline.applications.items() if name in row.queues}
    stopped = [reader for reader, row in readers.items() if row.state == "stopped"]
    if readers and len(stopped) == len(readers):
        noun = "Application" if len(stopped) == 1 else "Applications"
        sentence = f"{noun} {join_names(stopped)} {are(stopped)} stopped, so queue {name} waits."
        return _describe_late_queue(
            scene, name, sentence, [suggestions.suggest_start(snapshot, reader) for reader in stopped]
        )
    return _describe_overload(scene, name, FLOW.name, "flow control", [])


def _describe_late_jobs(scene: Scene, name: str, row: QueueStatus) -> Cause:
    """Describe a late queue of workers."""
    snapshot = scene.snapshot
    if scope.list_missing_capabilities(name, snapshot):
        return _describe_late_queue(scene, name, scene.states[f"queue/{name}"].finding, [])
    held = _list_held_loops(snapshot, name)
    if held and not sum(part.workers_busy or 0 for part in row.containers.values()):
        sentence = f"The worker rate loops of queue {name} are on hold, so no workers start."
        return _describe_late_queue(scene, name, sentence, suggestions.suggest_ending_holds(snapshot, name, held))
    slot = suggestions.suggest_slot(snapshot, name)
    slower = _find_slowdown(row, _is_burst(scene, name))
    if slower is not None or (is_slow(row) and not _is_burst(scene, name)):
        takes = format_coarse(row.service_seconds or 0.0)
        how = f"became {slower}× slower" if slower is not None else f"takes {takes} per event"
        pause = suggestions.suggest_pause(snapshot, name, ())
        actions = [*suggestions.suggest_rollback(snapshot, name), *slot, *pause]
        cause = _describe_late_queue(scene, name, f"The handler of queue {name} {how}.", actions)
        return replace(cause, is_independent=slower is not None)
    return _describe_overload(scene, name, WORKER_RATE.name, "the worker rate loop", slot)


def _list_held_loops(snapshot: Snapshot, queue: str) -> list[str]:
    """Return the worker-rate loops of a queue if people hold all of them."""
    loops = {
        name: loop
        for name, loop in snapshot.loops.items()
        if loop.law == WORKER_RATE.name and loop.target.get("queue") == queue
    }
    return list(loops) if all(loop.mode in Loop.HANDED_OVER for loop in loops.values()) else []


def _describe_overload(scene: Scene, name: str, law: str, handler: str, remedies: Sequence[SuggestedAction]) -> Cause:
    """Describe a queue that gets more than it handles: by a hot key, a burst, or for no known reason.

    A burst that the loops handle is a warning without actions. law, handler: of the loops.
    """
    snapshot, row = scene.snapshot, scene.snapshot.queues[name]
    late = scene.is_late(name)
    if late and scene.has_caught_up(name):
        return _describe_caught_up(scene, name)
    intake = suggestions.suggest_intake_pause(snapshot, name)
    producer = find_dominant_producer(snapshot, name)
    producer_remedy = suggestions.suggest_producer_remedy(snapshot, producer) if producer else []
    # If an application sends the events, their key is not the cause.
    burst, hot = _is_burst(scene, name), None if producer_remedy else find_hot_key(snapshot, name)
    first = hot or _needs_more_slots(snapshot, name)
    actions = [*intake, *remedies] if first else [*remedies, *intake]
    actions = actions if hot else [*producer_remedy, *actions]
    what = _describe_burst(snapshot, name) if burst else f"Queue {name} is filling"
    if hot:
        what = f"Queue {name} falls behind" if late else f"Queue {name} is filling"
        what = f"{what}: most of its events have the key {hot}"
    elif late and not burst:
        what = f"Queue {name} {'catches up' if row.trend == 'falling' else 'falls behind'}"
    acting = any(
        loop.law == law and loop.mode == Loop.Mode.AUTO and loop.target.get("queue", name) == name
        for loop in snapshot.loops.values()
    )
    if late and (row.trend != "falling" or not acting):
        return _describe_late_queue(scene, name, f"{what}.", actions)
    limit, wait = scene.find_limit(name), row.wait_seconds
    severity: Severity = "warning" if late or scene.waits_noticeably(name) else "notice"
    of = f" (limit {format_seconds(limit)})" if limit else ""
    oldest = "" if wait is None else f"Oldest event {format_seconds(wait)}{of}"
    figures = [oldest, format_waiting(row.waiting_events), describe_clearing(row)]
    impact = f"{'; '.join(filter(None, figures))}."
    if acting:
        nothing = " Nothing to do." if row.trend == "falling" else ""
        return Cause(f"queue/{name}", f"{what}; {handler} is handling it.", f"{impact}{nothing}", (), (), severity)
    return Cause(f"queue/{name}", f"{what}.", impact, (), tuple(actions) if severity == "warning" else (), severity)


def _describe_caught_up(scene: Scene, name: str) -> Cause:
    """Describe a queue whose events waited too long, but that has no backlog left for an action to reduce."""
    row = scene.snapshot.queues[name]
    latency, limit = row.latency_p95_seconds, scene.find_limit(name, "queue_latency")
    of = f" (limit {format_seconds(limit)})" if limit else ""
    recent = f"the p95 latency of the last seconds is {format_seconds(latency)}{of}" if latency is not None else ""
    impact = join_sentences(scene.describe_waits([name]), recent, "nothing to do")
    return Cause(f"queue/{name}", f"Queue {name} has caught up.", impact, (), (), "notice")


def _describe_burst(snapshot: Snapshot, name: str) -> str:
    """Return a burst with its producer, or what it left: then other producers send most events."""
    if (snapshot.at or 0.0) - (snapshot.queues[name].burst_at or 0.0) > BURST_OVER_SECONDS:
        return f"The backlog of a burst on queue {name}"
    return f"A burst on queue {name}{describe_producer(snapshot, name)}"


def _needs_more_slots(snapshot: Snapshot, name: str) -> bool:
    """Return whether one more worker slot is not enough for the arrivals of a queue."""
    wanted = suggestions.compute_slots_wanted(snapshot, name)
    return wanted is not None and wanted > (snapshot.totals.worker_slots or 0) + 1


def _is_burst(scene: Scene, name: str) -> bool:
    """Return whether more events than usual arrive, or did when the backlog arose."""
    at = scene.snapshot.queues[name].burst_at
    return at is not None and 0.0 <= (scene.snapshot.at or 0.0) - at <= BURST_SECONDS


def _find_slowdown(row: QueueStatus, is_burst: bool) -> int | None:
    """Return how many times slower than usual the handler is, if that is the cause."""
    slower = compute_slowdown(row)
    return None if slower is not None and is_burst and slower < CLEARLY_SLOWER else slower


def _describe_late_queue(scene: Scene, name: str, sentence: str, actions: Sequence[SuggestedAction]) -> Cause:
    """Return the cause of a late queue that no other subject explains."""
    row = scene.snapshot.queues[name]
    parts = [scene.describe_waits([name])]
    latency, limit = row.latency_p95_seconds, scene.find_limit(name, "queue_latency")
    if latency is not None and limit is not None and latency >= limit:
        parts.append(f"the p95 latency is {format_seconds(latency)} (limit {format_seconds(limit)})")
    parts += [format_waiting(row.waiting_events) if row.waiting_events else "", _describe_service(row)]
    loops = tuple(scene.list_loops(queue=name))
    early: Severity | None = "warning" if not scene.is_late(name) and scene.waits_noticeably(name) else None
    return Cause(f"queue/{name}", sentence, join_sentences(*parts), loops, tuple(actions), early)


QUEUE_FINDERS = (
    _find_pauses,
    _find_failing_destinations,
    _find_slot_holder,
    _find_poison,
    _find_late_queues,
    _find_dead_letters,
)
