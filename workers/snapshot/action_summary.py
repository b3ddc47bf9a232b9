"""What plans, loops and people are doing about the plant's state: the action summary."""

from collections.abc import Iterator, Sequence

from controllers.framework.reason import capitalised
from queues.nodes.node_state import OVERLOADED
from queues.waiting import UNHEALTHY_SECONDS
from workers.control.kinds.registry import display_of
from workers.documents.snapshot import PlantHealth, PlantTotals, Snapshot
from workers.models import Loop, Plan
from workers.placement.plans import BEING_EXECUTED
from workers.snapshot.health import SEVERITY

LATELY_SECONDS = 120.0
MOST_PARTS = 3
REPORTED_SECONDS = 2.0  # of backlog: below, its trend is noise
STEADY_EVENTS, STEADY_SHARE = 50, 0.02  # a change that is less is none, as the page says it too


def with_action_summary(snapshot: Snapshot) -> PlantHealth:
    """The snapshot's health, its sentence continued by the action summary."""
    health = snapshot.health
    abnormal = SEVERITY.index(health.state) > 0
    parts = [*_engaged(snapshot), *_plans(snapshot), *_recent_actions(snapshot, abnormal), *_held(snapshot)]
    if not parts and _loops_could_act(snapshot):
        parts = [f"no loop acted in the last {LATELY_SECONDS / 60:.0f} min"]
    if abnormal:
        parts += _trend(snapshot.totals)
    if not parts:
        return health
    summary = capitalised("; ".join(parts[:MOST_PARTS]))
    return PlantHealth(health.state, f"{health.sentence} {summary}.")


def _engaged(snapshot: Snapshot) -> Iterator[str]:
    """What loops have enabled and not yet disabled, the most first: it may cost delay, or events."""
    engaged = [
        (loop.actuator, words(loop))
        for _, loop in sorted(snapshot.loops.items())
        if loop.mode in Loop.ACTING and (words := display_of(loop.law).engaged) and loop.actuator
    ]
    for _, words_of_one in sorted(engaged, key=lambda each: -each[0]):
        yield words_of_one


def _loops_could_act(snapshot: Snapshot) -> bool:
    """A node with too much to do, or a queue that falls behind; dead letters wait for a person."""
    busy = any(node.state in OVERLOADED for node in snapshot.nodes.values())
    behind = (queue.wait_seconds for queue in snapshot.queues.values())
    return busy or any((seconds or 0.0) > UNHEALTHY_SECONDS for seconds in behind)


def _plans(snapshot: Snapshot) -> Iterator[str]:
    for plan in snapshot.plans:
        if plan.state == Plan.State.PROPOSED:
            yield f"plan {plan.id} ({plan.points} points) waits for approval"
        elif plan.state in BEING_EXECUTED:
            done = f"{100 * plan.progress_share:.0f} % done"
            yield f"plan {plan.id} moves {plan.points} points, {done}"


def _recent_actions(snapshot: Snapshot, abnormal: bool) -> Iterator[str]:
    """What each law did last, the newest first; the moves of a plan are in the plan's part. While all is
    well only moves of points count: workers start all the time.
    """
    planned = any(plan.state in BEING_EXECUTED for plan in snapshot.plans)
    for action in snapshot.deeds:
        age_seconds = (snapshot.at or 0.0) - action.at
        reported = not planned if action.points else abnormal
        if age_seconds <= LATELY_SECONDS and reported and display_of(action.law).is_news:
            yield f"{action.law.replace('_', ' ')} {action.did} {ago(age_seconds)}"


def _held(snapshot: Snapshot) -> Iterator[str]:
    held = [name for name, loop in snapshot.loops.items() if loop.mode in Loop.HANDED_OVER]
    if len(held) == 1:
        (name,) = held
        mode = snapshot.loops[name].mode
        yield f"{name.replace('_', ' ')} is {'on hold' if mode == 'hold' else 'in manual'}"
    elif held:
        yield f"{len(held)} loops are on hold or in manual"


def _trend(totals: PlantTotals) -> Sequence[str]:
    change, now = totals.backlog_change_events, totals.backlog_events
    if change is None or now is None or (totals.backlog_seconds or 0.0) < REPORTED_SECONDS:
        return []
    if abs(change) <= max(STEADY_EVENTS, STEADY_SHARE * (now - change)):
        return ["the backlog is steady"]
    return ["the backlog falls" if change < 0 else "the backlog rises"]


def ago(seconds: float) -> str:
    """Coarse on purpose: a sentence that changes each second is read by nobody."""
    if seconds < 10:
        return "just now"
    return f"{seconds // 10 * 10:.0f} s ago" if seconds < 60 else f"{seconds // 60:.0f} min ago"
