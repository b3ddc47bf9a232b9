"""Actions that people took against a problem, as the audit log records them.

Weir doesn't offer an action again while its effect can still occur. If the problem remains after that time, Weir offers
the next action first, and the repeated action last.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from common.stored_document import replace_fields
from console.actions.queues.definitions import is_roll_back
from console.models import AuditEntry
from controllers.concurrency.law import LAW as CONCURRENCY
from workers.alerts.conditions.condition import describe_loop
from workers.documents.snapshot import Snapshot
from workers.documents.states import SuggestedAction
from workers.models import Loop, Plan
from workers.snapshot.suggestions import PIPELINE_START_SECONDS

RECENT = timedelta(minutes=10)
# Recent actions count even if the problem began after them, because its severity may have changed since.
ALWAYS_COUNTED = timedelta(minutes=2)
SETTLE_SECONDS = 15.0
SLOW = ("pipeline.restart", "pipeline.start", "pipeline.declare", "queue.change", "plan.propose")
FAILED = "failed."
ENDED = ("override.end", "override.undo")  # of a pause, or of a mode


@dataclass(frozen=True, kw_only=True)
class TakenAction:
    """An action that a person took. settles_at: the Unix time until which its effect can still occur."""

    words: str
    by: str
    at: datetime
    settles_at: float
    settle_seconds: float
    is_settling: bool


@dataclass(frozen=True, kw_only=True)
class ReviewedActions:
    """The actions to offer, the next one first, and those that were taken, the newest first."""

    offered: list[SuggestedAction] = field(default_factory=list)
    taken: list[TakenAction] = field(default_factory=list)


class _Record(NamedTuple):
    """The name of an action in the audit log. target: "" for any target; part: a name that the new values must contain.

    override: the name of the override that the action sets, or ""; mode: the mode that it sets, or "".
    """

    action: str
    target: str
    part: str = ""
    override: str = ""
    mode: str = ""


def review_actions(
    suggested: Sequence[SuggestedAction], snapshot: Snapshot, since: float | None, now: datetime
) -> ReviewedActions:
    """Return which suggested actions to offer, and which were taken against a problem that began at `since`."""
    records = [_name_record(action) for action in suggested]
    entries = _load_entries({record.action for record in records if record is not None}, now)
    counted_at = min(now - ALWAYS_COUNTED, now if since is None else datetime.fromtimestamp(since, now.tzinfo))
    fresh: list[SuggestedAction] = []
    repeated: list[tuple[datetime, SuggestedAction]] = []
    taken: list[TakenAction] = []
    for action, record in zip(suggested, records, strict=True):
        entry = _find_entry(record, entries) if record is not None else None
        if entry is None or entry.at < counted_at:
            fresh.append(action)
            continue
        done = _build_taken(action, entry, snapshot, now)
        taken.append(done)
        if plan := _find_open_plan(entry, snapshot):
            fresh.append(plan)
        elif not done.is_settling:
            repeated.append((entry.at, replace_fields(action, words=f"{action.words} again")))
    last = [action for _, action in sorted(repeated, key=lambda row: row[0])]
    return ReviewedActions(offered=[*fresh, *last], taken=sorted(taken, key=lambda row: row.at, reverse=True))


def _name_record(suggested: SuggestedAction) -> _Record | None:
    """Return how the audit log names an action; None if the action ends its own suggestion."""
    kind, _, name = suggested.subject.partition("/")
    match suggested.action:
        case "queue.pause":
            return _Record("queue.pause", f"queue {name}", suggested.value, override=suggested.value)
        case "loop.mode":
            mode = suggested.value if suggested.value in Loop.Mode.values else Loop.Mode.MANUAL
            target = f"{CONCURRENCY.name}/{name}" if kind == "host" else name
            return _Record("loop.mode", target, override="mode", mode=mode)
        case "pipeline.steer":
            return _Record(f"pipeline.{suggested.value or 'restart'}", name)
        case "queue.define":
            return _Record("queue.change", name)
        case "plan.propose":
            return _Record("plan.propose", "")
        case "process.restart" | "pipeline.declare":
            return _Record(suggested.action, name)
    return None


def _load_entries(actions: Iterable[str], now: datetime) -> list[AuditEntry]:
    """Return the recent entries of these actions, also of failed attempts, the newest first."""
    names = [name for action in actions for name in (action, f"{FAILED}{action}")]
    if not names:
        return []
    return list(AuditEntry.objects.filter(action__in=[*names, *ENDED], at__gte=now - RECENT).order_by("-pk"))


def _find_entry(record: _Record, entries: Iterable[AuditEntry]) -> AuditEntry | None:
    """Return the newest entry of an action; None if it failed, was ended or undone, or if there is none."""
    for entry in entries:
        if entry.action in ENDED and entry.target == record.target and record.override in (entry.before or {}):
            return None
        is_of = entry.action.removeprefix(FAILED) == record.action and record.target in ("", entry.target)
        if is_of and (not record.part or record.part in (entry.after or {})):
            failed = entry.action.startswith(FAILED)
            # Other changes of a queue are no remedy, and may even be the cause.
            is_other = record.action == "queue.change" and not is_roll_back(entry)
            is_other |= record.mode not in ("", (entry.after or {}).get("mode"))
            return None if failed or is_other else entry
    return None


def _build_taken(action: SuggestedAction, entry: AuditEntry, snapshot: Snapshot, now: datetime) -> TakenAction:
    is_slow = entry.action in SLOW or action.subject == "process/pipeline"
    seconds = PIPELINE_START_SECONDS if is_slow else SETTLE_SECONDS
    settles_at = entry.at.timestamp() + seconds
    is_settling = now.timestamp() < settles_at
    return TakenAction(
        words=_describe(action, entry, snapshot, is_settling),
        by=entry.actor,
        at=entry.at,
        settles_at=settles_at,
        settle_seconds=seconds,
        is_settling=is_settling,
    )


def _describe(action: SuggestedAction, entry: AuditEntry, snapshot: Snapshot, is_settling: bool) -> str:
    """Return what was done, such as "Restart of agent-n2 requested"."""
    name = action.subject.partition("/")[2]
    match entry.action:
        case "process.restart":
            events = [event for event in snapshot.processes if event.name == name and event.kind == "restarted"]
            ran = any(event.at >= entry.at.timestamp() for event in events)
            return f"Restart of {name} requested" if is_settling and not ran else f"{name} restarted"
        case "pipeline.restart" | "pipeline.start":
            verb = entry.action.removeprefix("pipeline.")
            return f"{verb.capitalize()} of {name} requested" if is_settling else f"{name} {verb}ed"
        case "queue.pause":
            return f"{action.value.capitalize()} of {name} paused"
        case "queue.change":
            return f"Handler of {name} rolled back"
        case "pipeline.declare":
            return f"Declaration of {name} changed"
        case "plan.propose":
            return f"{entry.target.capitalize()} proposed"
    loop = describe_loop(entry.target)
    return f"{loop[:1].upper()}{loop[1:]} set to {(entry.after or {}).get('mode', 'another mode')}"


def _find_open_plan(entry: AuditEntry, snapshot: Snapshot) -> SuggestedAction | None:
    """Return the approval of a plan that was proposed against the problem and still waits for approval."""
    if entry.action != "plan.propose":
        return None
    waiting = [plan for plan in snapshot.plans if f"plan {plan.id}" == entry.target]
    if not waiting or waiting[0].state != Plan.State.PROPOSED:
        return None
    number = str(waiting[0].id)
    effect = "Nothing moves until a person approves the plan."
    return SuggestedAction(
        action="plan.approve", subject=f"plan/{number}", words=f"Review plan {number}", effect=effect
    )
