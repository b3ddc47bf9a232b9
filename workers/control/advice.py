"""The value of advice that was not followed: a first report after an hour, and a proposal to act after a day.

The first report is about a loop at an attached plant. A proposal is about any loop that advises: if its advice of a
day would have saved hours of workers, tasks, or nodes without more waiting, or would have reduced the waiting, Weir
proposes to set the loop to auto, within the range of values that it advised. A person approves the proposal by its
hash. Without a valid measurement of most of the day, or without such an effect, the next day is evaluated. After a
rejection, the loop advises for another week before it is evaluated again.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from common.stored_document import convert_to_plain
from controllers.framework import code
from controllers.parallelism.advice_value import AdvisedTick, compute_advice_value
from controllers.shedding.ladder import LAW as LADDER
from workers.control.kinds.registry import KINDS
from workers.control.ledger import folds
from workers.control.parts.kind import AdviceMeasure
from workers.control.parts.operators import OWNERS
from workers.documents.loops import AdviceEffect, FirstReportFigures
from workers.models import FirstReport, LedgerEntry, Loop, ModeProposal
from workers.steering.prices import compute_cost, load_prices
from workers.steering.scope import list_active_loops

logger = logging.getLogger(__name__)
HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(days=7)
MIN_SECONDS = 600.0  # of the hour of a first report
MIN_DAY_SECONDS = 20 * 3_600.0
# A tick's values apply until the next tick, unless a tick was missed.
MAX_INTERVALS = 3.0
# Weir proposes a change if it saves at least this share of the hours and the waiting grows by at most this factor, or
# if the waiting falls to this factor or less.
MIN_SAVED_SHARE, MAX_MORE_WAITING, MIN_LESS_WAITING = 0.02, 1.02, 0.9


def write_due(now: datetime) -> list[FirstReport]:
    """Write the reports of what a loop's advice would have saved in the first hour, each from its loop's ledger.

    Where less than MIN_SECONDS of the hour were measured (the plant was silent, or others controlled it), the report
    says so, and the next hour is reported instead.
    """
    reports = []
    loops = list_active_loops().filter(law__in=OWNERS, mode=Loop.Mode.ADVISE, target__has_key="plant")
    for loop in list(loops.exclude(first_report__figures__isnull=False)):
        since = _find_report_start(loop)
        if since is not None and since + HOUR <= now:
            reports.append(_write_report(loop, since, since + HOUR))
    return reports


def begin_anew(loop: Loop, now: datetime) -> None:
    """Restart the report for a loop whose plant was replaced: earlier reports describe the previous plant."""
    FirstReport.objects.update_or_create(loop=loop, defaults={"since": now, "until": now, "figures": None})


def _find_report_start(loop: Loop) -> datetime | None:
    """Return the start of the hour to report: the first advice, or the end of the last report."""
    report = FirstReport.objects.filter(loop=loop).first()
    if report is not None:
        return report.until
    first = loop.entries.filter(mode=Loop.Mode.ADVISE).order_by("pk").first()
    return None if first is None else first.at


def _write_report(loop: Loop, since: datetime, until: datetime) -> FirstReport:
    ticks = read_advised_ticks(loop, KINDS[loop.law].tuning.advice, since, until)
    value = compute_advice_value(ticks, MAX_INTERVALS * loop.interval_seconds)
    figures = FirstReportFigures(**vars(value), pause_seconds=float(loop.parameters.get("pause_seconds") or 0.0))
    report, _ = FirstReport.objects.update_or_create(
        loop=loop,
        defaults={
            "since": since,
            "until": until,
            "figures": convert_to_plain(figures) if value.measured_seconds >= MIN_SECONDS else None,
        },
    )
    return report


def read_advised_ticks(
    loop: Loop, measure: AdviceMeasure | None, since: datetime, until: datetime
) -> list[AdvisedTick]:
    """Return the ticks of a loop in advise in since ≤ at < until, as its kind measures them."""
    if measure is None:
        return []
    entries = loop.entries.filter(mode=Loop.Mode.ADVISE)
    only = ("at", "observation", "action", "terms")
    return [_build_tick(entry, measure) for entry in folds.iterate_ticks(entries, since, until, only=only)]


def _build_tick(entry: LedgerEntry, measure: AdviceMeasure) -> AdvisedTick:
    observed: Mapping[str, Any] = entry.observation or {}
    # The law doesn't run if no measurement is valid, or if there is nothing to decide. The entry then has no terms.
    law_ran = bool(observed) and not observed.get("unfit") and not observed.get("idle")
    operators = measure.of(observed, entry.action or {}, entry.terms or {}) if law_ran else {}
    return AdvisedTick(at=entry.at.timestamp(), operators=operators)


def propose_due(now: datetime) -> ModeProposal | None:
    """Evaluate one loop whose day of advice is over, and return the proposal if its advice is worth acting on.

    This reads a day of ticks, so each call evaluates at most one loop.
    """
    laws = [name for name, kind in KINDS.items() if kind.tuning.advice is not None]
    loops = list_active_loops().filter(law__in=laws, mode=Loop.Mode.ADVISE)
    loops = loops.exclude(law=LADDER.name, target__has_key="plant")  # it can only advise
    for loop in loops.filter(mode_proposal=None):
        ModeProposal.objects.get_or_create(loop=loop, defaults={"until": now})
    due = loops.filter(mode_proposal__until__lte=now - DAY).order_by("mode_proposal__until").first()
    if due is None:
        return None
    effect = None
    try:
        if not _has_another_owner(due):
            effect = measure_advice(due, now - DAY, now)
    except (KeyError, TypeError, ValueError):  # an entry of another version; the next day is evaluated
        logger.exception("The advice of %s can't be evaluated.", due.name)
    state = ModeProposal.State.PROPOSED if effect and is_worth_acting(effect) else ModeProposal.State.OBSERVING
    proposal, _ = ModeProposal.objects.update_or_create(
        loop=due,
        defaults={
            "state": state,
            "until": now,
            "figures": None if effect is None else convert_to_plain(effect),
            "hash": "" if effect is None else compute_hash(due, effect),
            "decided_by": None,
            "decided_at": None,
        },
    )
    return proposal if state == ModeProposal.State.PROPOSED else None


def _has_another_owner(loop: Loop) -> bool:
    """Return whether another law that sets the same tasks acts on the loop's target."""
    rivals = list_active_loops().filter(law__in=OWNERS, mode=Loop.Mode.AUTO).exclude(pk=loop.pk)
    return loop.law in OWNERS and any(rival.target == loop.target for rival in rivals)


def measure_advice(loop: Loop, since: datetime, until: datetime) -> AdviceEffect | None:
    """Return the effect that the advice of this time would have had; None if too little of it was measured."""
    measure = KINDS[loop.law].tuning.advice
    ticks = read_advised_ticks(loop, measure, since, until)
    value = compute_advice_value(ticks, MAX_INTERVALS * loop.interval_seconds)
    if measure is None or value.measured_seconds < MIN_DAY_SECONDS * ((until - since) / DAY):
        return None
    advised = [sum(operator.advised for operator in tick.operators.values()) for tick in ticks if tick.operators]
    prices = load_prices()
    price = {"worker": prices.worker_hour, "task": prices.task_hour, "node": prices.node_hour}.get(measure.unit)
    return AdviceEffect(
        unit=measure.unit,
        measured_seconds=value.measured_seconds,
        unit_hours=value.task_hours,
        advised_unit_hours=value.advised_task_hours,
        least=min(advised),
        most=max(advised),
        changes=value.changes,
        events=value.events,
        waiting_event_seconds=value.waiting_event_seconds,
        advised_waiting_event_seconds=value.advised_waiting_event_seconds,
        saved_cost=compute_cost(value.task_hours - value.advised_task_hours, price),
    )


def is_worth_acting(effect: AdviceEffect) -> bool:
    """Return whether the advice would have saved hours without more waiting, or reduced the waiting."""
    if effect.unit == "level":
        return effect.advised_unit_hours > 0  # only a person can judge the cost of the levels
    was, advised = effect.waiting_event_seconds, effect.advised_waiting_event_seconds
    saves = effect.unit_hours - effect.advised_unit_hours >= MIN_SAVED_SHARE * effect.unit_hours > 0
    if was is None or advised is None:
        return saves
    return (saves and advised <= MAX_MORE_WAITING * was) or advised < MIN_LESS_WAITING * was


def is_bounded(loop: Loop) -> bool:
    """Return whether an approved range of values becomes the guard's minimum and maximum."""
    measure = KINDS[loop.law].tuning.advice
    return measure is not None and measure.is_bounded


def compute_hash(loop: Loop, effect: AdviceEffect) -> str:
    """Return the hash that an approval names: of the loop's settings, the effect, and the deciding code."""
    rests_on = {
        "loop": loop.name,
        "parameters": loop.parameters,
        "guard": loop.guard,
        "effect": convert_to_plain(effect),
        "code": code.compute_code_version(),
    }
    return hashlib.sha256(json.dumps(rests_on, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
