"""What plans, loops and people are doing about the plant's state: the action summary."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from controllers.framework.reason import capitalised
from controllers.shedding.ladder import level
from workers.snapshot.health import BEHIND_SECONDS, SEVERITY

LATELY_SECONDS = 120.0
MOST_PARTS = 3
HANDED_OVER = ("hold", "manual")
NOT_ACTING = ("advise", "hold")
# They set their actuator at each tick, so that they did is no news.
REGULATORS = ("flow", "balance", "ladder")
REPORTED_SECONDS = 2.0  # of backlog: below, its trend is noise
STEADY_EVENTS, STEADY_SHARE = 50, 0.02  # a change that is less is none, as the page says it too
Document = Mapping[str, Any]


def with_action_summary(snapshot: Document) -> dict[str, str]:
    """The snapshot's health, its sentence continued by the action summary."""
    health = snapshot["health"]
    abnormal = SEVERITY.index(health["state"]) > 0
    parts = [*_ladders(snapshot), *_plans(snapshot), *_recent_actions(snapshot, abnormal), *_held(snapshot)]
    if not parts and _loops_could_act(snapshot):
        parts = [f"no loop acted in the last {LATELY_SECONDS / 60:.0f} min"]
    if abnormal:
        parts += _trend(snapshot["totals"])
    if not parts:
        return dict(health)
    summary = capitalised("; ".join(parts[:MOST_PARTS]))
    return {**health, "sentence": f"{health['sentence']} {summary}."}


def _ladders(snapshot: Document) -> Iterator[str]:
    """The highest level enabled for each queue that has one; those that cost delay or events first."""
    engaged = [
        (loop["actuator"], loop["target"]["queue"])
        for name, loop in snapshot["loops"].items()
        if name.startswith("ladder/") and loop["mode"] not in NOT_ACTING and loop["actuator"]
    ]
    for rung, queue in sorted(engaged, key=lambda each: (-each[0], each[1])):
        yield f"the remedy ladder of {queue} has enabled {level(int(rung))}"


def _loops_could_act(snapshot: Document) -> bool:
    """A node with too much to do, or a queue that falls behind; dead letters wait for a person."""
    busy = any(node["state"] in ("BUSY", "TOOBUSY") for node in snapshot["nodes"].values())
    behind = (queue["wait_seconds"] for queue in snapshot["queues"].values())
    return busy or any((seconds or 0.0) > BEHIND_SECONDS for seconds in behind)


def _plans(snapshot: Document) -> Iterator[str]:
    for plan in snapshot["plans"]:
        if plan["state"] == "proposed":
            yield f"plan {plan['id']} ({plan['points']} points) waits for approval"
        elif plan["state"] in ("approved", "running"):
            done = f"{100 * plan['progress_share']:.0f} % done"
            yield f"plan {plan['id']} moves {plan['points']} points, {done}"


def _recent_actions(snapshot: Document, abnormal: bool) -> Iterator[str]:
    """What each law did last, the newest first; the moves of a plan are in the plan's part. While all is
    well only moves of points count: workers start all the time.
    """
    planned = any(plan["state"] in ("approved", "running") for plan in snapshot["plans"])
    for action in snapshot["deeds"]:
        age_seconds = snapshot["at"] - action["at"]
        reported = not planned if action["points"] else abnormal
        if age_seconds <= LATELY_SECONDS and reported and action["law"] not in REGULATORS:
            yield f"{action['law'].replace('_', ' ')} {action['did']} {ago(age_seconds)}"


def _held(snapshot: Document) -> Iterator[str]:
    held = [name for name, loop in snapshot["loops"].items() if loop["mode"] in HANDED_OVER]
    if len(held) == 1:
        (name,) = held
        mode = snapshot["loops"][name]["mode"]
        yield f"{name.replace('_', ' ')} is {'on hold' if mode == 'hold' else 'in manual'}"
    elif held:
        yield f"{len(held)} loops are on hold or in manual"


def _trend(totals: Document) -> Sequence[str]:
    change, now = totals["backlog_change_events"], totals["backlog_events"]
    if change is None or now is None or (totals["backlog_seconds"] or 0.0) < REPORTED_SECONDS:
        return []
    if abs(change) <= max(STEADY_EVENTS, STEADY_SHARE * (now - change)):
        return ["the backlog is steady"]
    return ["the backlog falls" if change < 0 else "the backlog rises"]


def past_tense(action: Mapping[str, Any]) -> str:
    """An action in the past tense."""
    if "moves" in action:
        return f"moved {sum(move['points'] for move in action['moves'])} points"
    if "shed" in action:
        most = max((share for types in action["shed"].values() for share in types.values()), default=0.0)
        return f"set shedding to up to {100 * most:.0f} % of a type" if most else "stopped shedding"
    if "rung" in action:
        return f"enabled {level(int(action['rung']))}" if action["rung"] else "disabled all levels"
    if "start" in action:
        return f"started {action['start']} worker{'' if action['start'] == 1 else 's'}"
    if "use" in action:
        parts = [("took into use", action["use"]), ("released", action["release"])]
        return (
            " and ".join(f"{verb} {', '.join(nodes)}" for verb, nodes in parts if nodes) or "restored points"
        )
    values = ", ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in action.items())
    return f"set {values}"


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"of {len(value)}"
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1_000 else f"{value:,.0f}"


def ago(seconds: float) -> str:
    """Coarse on purpose: a sentence that changes each second is read by nobody."""
    if seconds < 10:
        return "just now"
    return f"{seconds // 10 * 10:.0f} s ago" if seconds < 60 else f"{seconds // 60:.0f} min ago"
