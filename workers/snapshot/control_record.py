"""The database's control records in the form of the snapshot.

They are the loops' last decisions and recent actions, the overrides in force, and the open plans, runs of batch tasks,
and alerts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Q, Subquery

from controllers import catalog
from controllers.framework import guard
from controllers.framework.reason import read_action
from controllers.shedding import ladder
from workers.alerts.conditions.evidence import STALE
from workers.alerts.lifecycle.models import Alert, AlertRule, Silence
from workers.alerts.lifecycle.open_alerts import list_opening_incidents, open_alerts
from workers.alerts.rules.silences import list_active_silences
from workers.batch.runs import OPEN
from workers.control.kinds.registry import KINDS, find_display
from workers.control.ledger import ledger
from workers.control.parts.kind import Display
from workers.documents.alerts import AlertStatus
from workers.documents.loops import LoopStatus, OverrideStatus, RecentAction
from workers.documents.plans import PlanStatus
from workers.documents.snapshot import RunStatus
from workers.documents.windows import PlannedWindowStatus
from workers.models import LedgerEntry, Loop, Run
from workers.placement import plans
from workers.snapshot.destinations import list_retry_plans
from workers.snapshot.judgement import MAX_CLOCK_SECONDS, Limits, build_limits
from workers.steering import overrides
from workers.steering.overrides import list_active, select_effective, sort_by_expiry, spread
from workers.steering.scope import list_active_loops
from workers.windows.loop_modes import list_window_modes
from workers.windows.occurrences import list_current_windows
from workers.windows.status import list_window_statuses

RUN_SHOWN = timedelta(seconds=15)  # after its end
DIGITS = 3
ACTIONS_SHOWN, MAX_ACTIONS = timedelta(minutes=10), 50
MAX_AHEAD = timedelta(seconds=MAX_CLOCK_SECONDS)
_ROUTINE = [law for law, kind in KINDS.items() if not kind.display.is_news]
ACTED = [verdict for verdict in LedgerEntry.Verdict.values if verdict != LedgerEntry.Verdict.NO_ACTION]

NOTHING_BEFORE: Mapping[str, LoopStatus] = {}


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """The control records, all in the form of the snapshot.

    `loops` by name, `overrides`, the earliest expiry first, `plans`, the oldest first, `runs` by number, `alerts`, the
    most severe first, `recent_actions`, the newest first. `opening`: when the incidents of subjects open. `limits`: of
    the alert rules, which the states follow. `caps`: the maximum level of ladders that have one without an override, by
    queue. `silences` and `snoozed`: the active silences and the snoozed alerts. `windows`: the planned windows that are
    active or begin soon. `retry_plans`: the numbers of active ones, by what their tasks call.
    """

    loops: dict[str, LoopStatus]
    overrides: list[OverrideStatus]
    plans: list[PlanStatus]
    runs: dict[str, RunStatus]
    alerts: list[AlertStatus]
    opening: dict[str, float]
    recent_actions: list[RecentAction]
    limits: Limits
    caps: dict[str, str]
    silences: list[Silence]
    snoozed: list[Alert]
    windows: list[PlannedWindowStatus]
    retry_plans: dict[str, list[int]]


def control_record(now: datetime, before: Mapping[str, LoopStatus] = NOTHING_BEFORE) -> ControlRecord:
    """Return the records at this instant.

    This takes fourteen queries, however many records of each kind exist, and two for each loop without a valid
    measurement. before: the loops of the previous snapshot; one that is not among them starts anew, because its target
    has returned.
    """
    rows = list(sort_by_expiry(list_active(now).select_related("loop", "node", "owner")))
    loops = list(list_active_loops().order_by("name").annotate(last=Subquery(ledger.select_last_entry_ids())))
    entries = LedgerEntry.objects.in_bulk([loop.last for loop in loops if loop.last])
    windows = list(list_current_windows(now))
    held = spread(loops, [*rows, *list_window_modes(now, windows)])
    overridden = {
        loop.pk: {row.name: row.value for row in select_effective(loop, held[loop.pk], now)} for loop in loops
    }
    documents = {}
    for loop in loops:
        entry, known = entries.get(loop.last), before.get(loop.name)
        blind_since = _find_blind_start(entry, known, bool(before), loop.ticked_at) if entry else None
        documents[loop.name] = build_loop_status(loop, entry, overridden[loop.pk], blind_since)
    # Open runs and those that have just ended, so that a page shows how.
    lately = Q(state__in=OPEN) | Q(ended_at__gt=now - RUN_SHOWN)
    runs = Run.objects.filter(lately).select_related("task").order_by("created_at", "pk")
    # An override of the limit takes precedence.
    queues = [loop for loop in loops if loop.law == ladder.LAW.name and "queue" in loop.target]
    ladders = [loop for loop in queues if "cap" not in overridden[loop.pk]]
    caps = {loop.target["queue"]: str(loop.parameters.get("cap", ladder.LEVELS[-1])) for loop in ladders}
    return ControlRecord(
        loops=documents,
        overrides=overrides.build_statuses(rows),
        plans=[plans.build_plan_status(plan) for plan in plans.open_plans(now)],
        runs={str(row.pk): _run(row) for row in runs},
        alerts=open_alerts(),
        opening=list_opening_incidents(),
        recent_actions=_list_recent_actions(now),
        limits=build_limits(AlertRule.objects.order_by("pk")),
        caps={queue: cap for queue, cap in caps.items() if cap != ladder.LEVELS[-1]},
        silences=list(list_active_silences(now).select_related("owner")),
        snoozed=list(
            Alert.objects.filter(snoozed_until__gt=now, resolved_at__isnull=True).select_related("snoozed_by")
        ),
        windows=list_window_statuses(windows, now),
        retry_plans=list_retry_plans(),
    )


def _list_recent_actions(now: datetime) -> list[RecentAction]:
    """Return the last applied action of each law's loops, if recent.

    Laws that act at every tick are read separately, because they would displace the others.
    """
    # A record with a future time was made before a clock was set back, and would hide newer actions.
    lately = (now - ACTIONS_SHOWN, now + MAX_AHEAD)
    acted = LedgerEntry.objects.filter(verdict__in=ACTED, at__range=lately, applied=True)
    ordered = acted.select_related("loop").order_by("-at")
    newest: dict[str, LedgerEntry] = {}
    for some in (ordered.exclude(loop__law__in=_ROUTINE), ordered.filter(loop__law__in=_ROUTINE)):
        for entry in some[:MAX_ACTIONS]:
            newest.setdefault(entry.loop.law, entry)
    latest_first = sorted(newest.values(), key=lambda action: action.at, reverse=True)
    return [
        RecentAction(
            law=entry.loop.law,
            entry=entry.pk,
            at=entry.at.timestamp(),
            verdict=entry.verdict,
            did=find_display(entry.loop.law, entry.loop.target).past(entry.action or {}),
            points=sum(move["points"] for move in (entry.action or {}).get("moves", ())),
        )
        for entry in latest_first
    ]


def _run(row: Run) -> RunStatus:
    progress = row.progress
    stages = progress.get("stages") or {}
    return RunStatus(
        task=row.task.name,
        state=row.state,
        share=progress.get("share"),
        rows=progress.get("rows", 0),
        chunks_done=row.chunks_done,
        chunks_total=row.chunks_total,
        stages_done=stages.get("done", 0),
        stages_total=stages.get("total", 0),
        working=len(progress.get("working", ())),
        workers_wanted=row.workers_wanted,
        started_at=row.started_at.timestamp() if row.started_at else None,
        deadline_at=row.deadline_at.timestamp() if row.deadline_at else None,
    )


def build_loop_status(
    loop: Loop, entry: LedgerEntry | None, overridden: dict[str, Any], blind_since: float | None = None
) -> LoopStatus:
    """Return a loop; an override shows at once, even if the loop's next tick is seconds away."""
    parameters = {**(entry.parameters if entry else loop.parameters), **overridden}
    about = (entry.observation or {}) if entry else {}
    display = find_display(loop.law, loop.target)
    terms = entry.terms if entry else {}
    is_remedy = catalog.find_remedy_by_name(loop.law) is not None
    relieves = entry is not None and is_remedy and display.adds_capacity(about, entry.action)
    return LoopStatus(
        id=loop.pk,
        law=loop.law,
        target=loop.target,
        mode=overridden.get("mode", loop.mode),
        measured=_measure_display(display, entry),
        setpoint=next((parameters[name] for name in display.setpoints if name in parameters), None),
        actuator=_find_applied_value(display, loop.law, entry),
        at=(loop.ticked_at or entry.at).timestamp() if entry else None,
        reason=entry.reason if entry else None,
        verdict=entry.verdict if entry else None,
        entry=entry.pk if entry else None,
        overrides=len(overridden),
        terms={
            name: round(terms[name], DIGITS) if isinstance(terms[name], float) else terms[name]
            for name in display.terms
            if terms.get(name) is not None
        },
        interval_seconds=loop.interval_seconds,
        limited_by=entry.limited_by if entry else None,
        blind_since=blind_since,
        late_seconds=about.get("late_seconds"),
        cause=about.get("cause"),
        last_mode=entry.mode if entry else None,
        relief=read_action(entry.reason) if entry and relieves else None,
        cap=parameters.get("cap", ladder.LEVELS[-1]) if loop.law == ladder.LAW.name else None,
    )


def _find_blind_start(
    entry: LedgerEntry, before: LoopStatus | None, others_before: bool, ticked_at: datetime | None
) -> float | None:
    """Return the time of the first of the latest consecutive decisions without a valid measurement.

    None: the last decision had one. Values known a second ago are not read again, because there may be weeks of
    entries. The time while its target was missing does not count.
    """
    if entry.limited_by != STALE:
        return None
    if before is None and others_before:
        return float(max(entry.at, ticked_at or entry.at).timestamp())
    decided_at = entry.at.timestamp()
    if before is not None and before.blind_since is not None and (before.at or 0.0) >= before.blind_since > decided_at:
        return before.blind_since  # Its target has returned since its last decision.
    entries = LedgerEntry.objects.filter(loop=entry.loop_id, at__lte=entry.at)
    known = None
    if before is not None and before.at is not None and before.at <= entry.at.timestamp():
        known = before.blind_since
        if known is not None:
            entries = entries.filter(at__gt=datetime.fromtimestamp(before.at, UTC))
    sound = entries.exclude(limited_by=STALE).order_by("-at").values("at")[:1]
    blind = entries.filter(limited_by=STALE)
    if last := sound.first():
        blind = blind.filter(at__gt=last["at"])
    elif known is not None:
        return known
    first = blind.order_by("at").values_list("at", flat=True).first() or entry.at
    return float(first.timestamp())


def _measure_display(display: Display, entry: LedgerEntry | None) -> object:
    if entry is None or not display.measured:
        return None
    part, _, name = display.measured.partition(".")
    return (getattr(entry, part) or {}).get(name)


def _find_applied_value(display: Display, law: str, entry: LedgerEntry | None) -> float | None:
    """Return the applied value: 0 when nothing was applied, unknown without an entry.

    For a value that stays, it is the value in force.
    """
    if entry is None:
        return None
    if display.lasting:
        done = entry.action if entry.applied else None
        # During a cool-down the terms are not in force; only for a law with one number does the guard say so
        # in the terms.
        cools = entry.limited_by == guard.COOL_DOWN and catalog.get_law(law).actuator is None
        said = (entry.observation, ({} if cools else entry.terms), done)
        return next((term[display.lasting] for term in said if term and display.lasting in term), None)
    return display.compute_size(entry.action) if entry.applied else 0
