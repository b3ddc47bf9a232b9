"""The action summary: what plans, loops, and people are doing about the plant's state."""

from collections.abc import Iterator, Sequence

from common.stored_document import replace_fields
from controllers.framework.reason import capitalize, format_count
from queues.nodes.node_state import OVERLOADED
from workers.alerts.evaluation.impact import is_falling_behind
from workers.control.kinds.registry import find_display
from workers.documents.loops import RecentAction
from workers.documents.snapshot import PlantHealth, PlantTotals, Snapshot
from workers.documents.states import SEVERITIES
from workers.models import Loop, Plan
from workers.placement.plans import BEING_EXECUTED

LATELY_SECONDS = 120.0
MAX_PARTS = 3
REPORTED_SECONDS = 2.0  # of backlog: below this, its trend is noise
TRENDS = {"rising": "backlog rising", "falling": "backlog falling", "steady": "backlog steady"}
WARNING = SEVERITIES.index("warning")


def add_action_summary(snapshot: Snapshot) -> PlantHealth:
    """Return the snapshot's health with the actions that address it."""
    health = snapshot.health
    abnormal = SEVERITIES.index(health.severity) >= WARNING
    parts = [
        *_describe_engaged(snapshot),
        *_describe_plans(snapshot),
        *_describe_recent_actions(snapshot, abnormal),
        *_describe_held(snapshot),
    ]
    if not parts and _loops_could_act(snapshot) and not any(_iterate_recent_actions(snapshot)):
        parts = [f"no loop acted in the last {LATELY_SECONDS / 60:.0f} min"]
    if abnormal:
        parts += _describe_trend(snapshot.totals)
    if not parts:
        return health
    return replace_fields(health, doing=f"{capitalize('; '.join(parts[:MAX_PARTS]))}.")


def _describe_engaged(snapshot: Snapshot) -> Iterator[str]:
    """Describe what loops have enabled and not yet disabled, the highest first.

    It may cost delay or events.
    """
    engaged = [
        (loop.actuator, words(loop))
        for _, loop in sorted(snapshot.loops.items())
        if loop.was_decided_in(*Loop.ACTING)
        and (words := find_display(loop.law, loop.target).engaged)
        and loop.actuator
    ]
    for _, words_of_one in sorted(engaged, key=lambda item: -item[0]):
        yield words_of_one


def _loops_could_act(snapshot: Snapshot) -> bool:
    """Return whether a node is overloaded or a queue falls behind; dead letters require a person."""
    rows = [state for state in snapshot.states.values() if SEVERITIES.index(state.severity) >= WARNING]
    overloaded = any(row.kind == "node" and row.sign in OVERLOADED for row in rows)
    return overloaded or any(map(is_falling_behind, rows))


def _describe_plans(snapshot: Snapshot) -> Iterator[str]:
    for plan in snapshot.plans:
        if plan.state == Plan.State.PROPOSED:
            yield f"plan {plan.id} ({format_count(plan.points, 'point')}) is waiting for approval"
        elif plan.state in BEING_EXECUTED:
            done = f"{100 * plan.progress_share:.0f} % done"
            yield f"plan {plan.id} moves {format_count(plan.points, 'point')}, {done}"


def _describe_recent_actions(snapshot: Snapshot, abnormal: bool) -> Iterator[str]:
    """Return the last action of each law, the newest first.

    Moves of a plan are left out, since they have their own part. Without problems only moves of points count, since
    workers start all the time.
    """
    planned = any(plan.state in BEING_EXECUTED for plan in snapshot.plans)
    for action in _iterate_recent_actions(snapshot):
        if not planned if action.points else abnormal:
            yield f"{action.law.replace('_', ' ')} {action.did} {format_age((snapshot.at or 0.0) - action.at)}"


def _iterate_recent_actions(snapshot: Snapshot) -> Iterator[RecentAction]:
    """Return the notable actions of the last minutes; some laws act at every tick."""
    for action in snapshot.deeds:
        age_seconds = (snapshot.at or 0.0) - action.at
        # The absolute difference: an action from before a clock was set back did not happen just now.
        if abs(age_seconds) <= LATELY_SECONDS and find_display(action.law).is_news:
            yield action


def _describe_held(snapshot: Snapshot) -> Iterator[str]:
    held = [name for name, loop in snapshot.loops.items() if loop.mode in Loop.HANDED_OVER]
    if len(held) == 1:
        (name,) = held
        mode = snapshot.loops[name].mode
        yield f"{name.replace('_', ' ')} is {'on hold' if mode == 'hold' else 'in manual mode'}"
    elif held:
        yield f"{len(held)} loops are on hold or in manual mode"


def _describe_trend(totals: PlantTotals) -> Sequence[str]:
    if totals.backlog_trend is None or (totals.backlog_seconds or 0.0) < REPORTED_SECONDS:
        return []
    return [TRENDS[totals.backlog_trend]]


def format_age(seconds: float) -> str:
    """Return an age in coarse steps, because a sentence that changes each second is unreadable."""
    if seconds < 10:
        return "just now"
    return f"{seconds // 10 * 10:.0f} s ago" if seconds < 60 else f"{seconds // 60:.0f} min ago"
