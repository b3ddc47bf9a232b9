"""The condition of a loop: why its actions have no effect, its last decision as a table, and what its guard did."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from common import checks
from common.parameter import Parameter
from console.display.formats import format_for_input, format_value, get_human_unit
from controllers.concurrency.law import LAW as CONCURRENCY
from controllers.framework import guard
from controllers.framework.law import Law
from controllers.framework.reason import capitalize, format_count, format_number
from controllers.worker_rate.law import LAW as WORKER_RATE
from workers.alerts.conditions.condition import describe_loop
from workers.control.parts.kind import Display
from workers.documents.hosts import parse_role
from workers.documents.snapshot import Snapshot
from workers.documents.states import SubjectFinding
from workers.models import LedgerEntry, Loop

MIN_INEFFECTIVE = 3  # actions in succession, from which the page says so
MAX_ACTIONS, MAX_TICKS = 50, 500  # that are read
MAX_VALUES = 8  # of the last decision
FULL_SHARE = 0.95  # of the worker slots
JOBS = "jobs"
# Labels of observed values whose names are not plain.
LABELS = {
    "queue_length": "Events waiting",
    "oldest_seconds": "Oldest event",
    "removed": "Events processed since the last tick",
    "started": "Workers started since the last tick",
    "waiting_to_run": "Workers waiting for a slot",
    "running": "Workers running",
    "expected_per_second": "Expected arrivals",
}


@dataclass(frozen=True)
class EffectNotice:
    """Says that the last actions had no effect, and why. links: address → words, the most useful first."""

    title: str
    sentences: str
    links: Mapping[str, str]


@dataclass(frozen=True)
class DecisionValue:
    """A value of the last decision. is_grave: it is why the decision can't help."""

    label: str
    text: str
    is_grave: bool = False


@dataclass(frozen=True)
class LastDecision:
    """The newest entry of the ledger, with the values that it weighed."""

    entry: LedgerEntry
    values: Sequence[DecisionValue]


@dataclass(frozen=True)
class GuardRow:
    """A check of the guard: its setting, and its result in the recent ticks."""

    name: str
    setting: str
    result: str
    limits: bool = False


@dataclass(frozen=True, kw_only=True)
class LoopCondition:
    """The notice at the top of a loop's page."""

    notice: EffectNotice | None
    last: LastDecision | None
    guard: Sequence[GuardRow]
    ticks: int  # that the guard's results cover


def build_condition(
    loop: Loop, law: Law, display: Display, snapshot: Snapshot, limits: Mapping[str, Any]
) -> LoopCondition:
    """Return the condition of a loop. limits: the effective settings of its guard."""
    newest = loop.entries.order_by("-at", "-pk").defer("folded").first()
    recent = list(loop.entries.order_by("-at", "-pk").values_list("limited_by", "verdict")[:MAX_TICKS])
    return LoopCondition(
        notice=build_notice(loop, snapshot),
        last=None if newest is None else LastDecision(newest, list_values(newest, law, display, snapshot)),
        guard=list_guard_rows(newest, law, limits, recent),
        ticks=len(recent),
    )


def build_notice(loop: Loop, snapshot: Snapshot) -> EffectNotice | None:
    """Return why the last actions had no effect; None if fewer than three in succession had none."""
    acted = loop.entries.filter(acted=True, applied=True).exclude(verdict=LedgerEntry.Verdict.CHECKING)
    verdicts = list(acted.order_by("-at", "-pk").values_list("verdict", flat=True)[:MAX_ACTIONS])
    count = next(
        (place for place, verdict in enumerate(verdicts) if verdict != LedgerEntry.Verdict.INEFFECTIVE), len(verdicts)
    )
    if count < MIN_INEFFECTIVE:
        return None
    finding = find_finding(loop, snapshot)
    links: dict[str, str] = {}
    if finding and finding.incident is not None:
        links[reverse("alert", args=[finding.incident])] = f"Open incident {finding.incident}"
    pool = describe_full_pool(snapshot) if loop.law == WORKER_RATE.name and "queue" in loop.target else ""
    if pool:
        for helper in Loop.objects.filter(law=CONCURRENCY.name, target__host__in=list_job_hosts(snapshot)):
            links[reverse("loop", args=[helper.pk])] = capitalize(describe_loop(helper.name))
        why = f"{pool} This loop starts workers, but can\u2019t add slots. A hold doesn\u2019t help the events."
    elif finding:
        why = f"{finding.sentence} {finding.impact}".strip()
    else:
        why = "The measured changes were smaller than expected. A decision\u2019s page compares both."
    return EffectNotice(f"The last {count} actions had no effect.", why, links)


def find_finding(loop: Loop, snapshot: Snapshot) -> SubjectFinding | None:
    """Return the worst problem that affects a loop, its queue, or its node."""
    subjects = {f"loop/{loop.name}", *(f"{kind}/{name}" for kind, name in loop.target.items())}
    findings = snapshot.health.findings if snapshot.health else []
    return next((row for row in findings if subjects & {row.subject, *row.affected}), None)


def list_job_hosts(snapshot: Snapshot) -> list[str]:
    return [name for name, host in snapshot.hosts.items() if parse_role(name) == JOBS and not host.drained]


def count_free_slots(snapshot: Snapshot) -> float | None:
    """Return the worker slots that no worker uses; None if unknown."""
    slots, busy = snapshot.totals.worker_slots, snapshot.totals.workers_at_work
    return None if not slots or busy is None else (0.0 if busy >= FULL_SHARE * slots else slots - busy)


def describe_full_pool(snapshot: Snapshot) -> str:
    """Name the pool and who holds its slots, in a sentence; "" while a slot is free."""
    slots = snapshot.totals.worker_slots
    if not slots or count_free_slots(snapshot) != 0.0:
        return ""
    held = {
        name: sum(row.workers_busy or 0 for row in queue.containers.values()) for name, queue in snapshot.queues.items()
    }
    holders = sorted((name for name, count in held.items() if count), key=lambda name: -held[name])
    hosts = list_job_hosts(snapshot)
    pool = f"Pool {hosts[0]} is full" if len(hosts) == 1 else "All pools are full"
    if len(holders) == 1 and held[holders[0]] >= slots:
        every = {1: "its slot", 2: "both slots"}.get(slots, f"all {slots} slots")
        return f"{pool}: queue {holders[0]} holds {every}."
    shares = ", ".join(f"{name} holds {held[name]} of {slots} slots" for name in holders[:3])
    return f"{pool}: {shares}." if shares else f"{pool}."


def list_values(entry: LedgerEntry, law: Law, display: Display, snapshot: Snapshot) -> list[DecisionValue]:
    """Return what a decision observed and weighed, with units, and the free slots that its workers need."""
    observed = entry.observation or {}
    rows = [row for parameter in law.observation if (row := _format_observed(parameter, observed))]
    terms = [name for name in display.terms if name not in observed and _is_shown((entry.terms or {}).get(name))]
    rows += [DecisionValue(_label(name), format_value(entry.terms[name])) for name in terms]
    rows = rows[:MAX_VALUES]
    free, slots = count_free_slots(snapshot), snapshot.totals.worker_slots
    if law.name == WORKER_RATE.name and "queue" in entry.loop.target and free is not None:
        rows.append(DecisionValue("Free worker slots now", f"{format_number(round(free, 1))} of {slots}", free == 0.0))
    return rows


def _format_observed(parameter: Parameter, observed: Mapping[str, Any]) -> DecisionValue | None:
    value = observed.get(parameter.name)
    if not _is_shown(value):
        return None
    unit = get_human_unit(parameter.unit, parameter.kind)
    label, text = _label(parameter.name), format_value(unit.convert(value))
    is_named = unit.name in label.lower().split()  # 46 of "Events waiting" needs no unit
    return DecisionValue(label, f"{text}\u00a0{unit.name}" if unit.name and not is_named else text)


def _is_shown(value: object) -> bool:
    return checks.is_number(value) or (isinstance(value, str) and value != "")


def _label(name: str) -> str:
    return LABELS.get(name) or capitalize(name.removesuffix("_seconds").removesuffix("_per_second").replace("_", " "))


def list_guard_rows(
    newest: LedgerEntry | None, law: Law, limits: Mapping[str, Any], recent: Sequence[tuple[str | None, str]]
) -> list[GuardRow]:
    """Return the checks of the guard, with how often each limited the recent ticks."""
    limited = Counter(limited_by for limited_by, _ in recent)
    verdicts = Counter(verdict for _, verdict in recent)
    rows = [_build_age_row(newest, limits, limited), _build_effect_row(newest, verdicts)]
    cooldown = limits["cooldown_seconds"]
    pause = f"one action every {cooldown:g} s" if cooldown else "none"
    rows.append(_build_row("Cool-down", pause, limited, guard.COOL_DOWN))
    if law.actuator is None:
        return rows
    low, high = format_value(limits["minimum"]), format_value(limits["maximum"])
    rows.append(_build_row("Range", f"{low} to {high}", limited, "guard minimum", "guard maximum"))
    steps = f"at most {format_value(limits['slew_up'])} up, {format_value(limits['slew_down'])} down"
    rows.append(_build_row("Step", steps, limited, "guard slew", "guard direction"))
    turns, window = limits["oscillation_turns"], limits["oscillation_window"]
    watched = f"{format_count(turns, 'reversal')} in {format_count(window, 'decision')}" if turns else "not checked"
    rows.append(_build_row("Oscillation", watched, limited, "oscillation"))
    if limits["cost_cap"]:
        rows.append(
            _build_row("Cost", f"at most {format_for_input(limits['cost_cap'])} per hour", limited, guard.COST_CAP)
        )
    return rows


def _build_row(name: str, setting: str, limited: Mapping[str | None, int], *reasons: str) -> GuardRow:
    count = sum(limited[reason] for reason in reasons if reason in limited)
    return GuardRow(name, setting, f"limited {format_count(count, 'tick')}" if count else "not limiting", count > 0)


def _build_age_row(
    newest: LedgerEntry | None, limits: Mapping[str, Any], limited: Mapping[str | None, int]
) -> GuardRow:
    age = ((newest.observation or {}) if newest else {}).get("age_seconds")
    setting = (
        f"{age:.1f} s of {limits['stale_seconds']:g} s"
        if checks.is_number(age)
        else f"at most {limits['stale_seconds']:g} s"
    )
    held = limited.get(guard.UNASKED[0], 0)
    return GuardRow("Measurement age", setting, f"held {format_count(held, 'tick')}" if held else "valid", held > 0)


def _build_effect_row(newest: LedgerEntry | None, verdicts: Mapping[str, int]) -> GuardRow:
    within = ((newest.expected or {}) if newest else {}).get("within_seconds")
    setting = f"after {within:g} s" if checks.is_number(within) else "after each action"
    none = verdicts.get(LedgerEntry.Verdict.INEFFECTIVE, 0)
    return GuardRow("Effect check", setting, f"{none} without effect" if none else "no ineffective actions", none > 0)
