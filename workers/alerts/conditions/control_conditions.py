"""Conditions of control itself.

They cover loops that oscillate, are at their limit, have no effect, have no valid measurement, or don't tick; and
overrides, plans, tasks, and the delivery of alerts.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Any

from controllers.framework.guard import count_reversals
from controllers.framework.reason import capitalize, format_count
from controllers.shedding import ladder
from controllers.worker_rate import law as worker_rate
from queues import pausing
from workers.alerts.conditions.condition import Condition, Reading
from workers.alerts.conditions.evidence import STALE, Evidence, FailureRecord, LedgerTick, LoopFacts
from workers.alerts.conditions.loop_words import describe_loop
from workers.control.kinds.registry import find_display
from workers.control.tick import HOST
from workers.documents.loops import OverrideStatus
from workers.models import Loop
from workers.steering.scope import DRAINING

# Limits that don't say how much headroom is left: the law waits, or its guard smooths.
NOT_AT_THE_LIMIT = {
    STALE,
    "nothing to decide",
    "waiting events",
    "guard cool-down",
    "guard slew",
    "oscillation",
    "node_state",
    "samples",
}
# How much the clocks of hosts may differ; a later timestamp dates from before a clock was set back.
AHEAD_SECONDS = 5.0
JUDGED = ("effective", "ineffective", "harmful")
INEFFECTIVE = {0: "recent actions were effective", 1: "its last action had no effect"}
# Limits of a tick that requested nothing. A loop that has requested nothing for this long has reached what it
# acted for.
WANTS_NOTHING = (None, "nothing to decide")
AT_REST_SECONDS = 30.0
OVERDUE_SECONDS = 5.0  # beyond two intervals
UNOBSERVED_SECONDS = 10.0  # the same as in rule `observer-silent`
STOPPED_SECONDS = 10.0  # On a starved host, at least one loop still ticks within this time.
# A shorter override ends while the person who set it still remembers it.
MIN_NOTICED_SECONDS = 15 * 60.0


def _build_labels(loop: LoopFacts) -> dict[str, str]:
    place = {key: loop.target[key] for key in ("queue", "node", "plant") if key in loop.target}
    return {"loop": loop.name, **place}


def _build_reading(evidence: Evidence, loop: LoopFacts, value: float | None, sentence: str) -> Reading:
    # A loop that steers the whole plant depends on every node.
    everywhere = list(evidence.plant.nodes)
    nodes = [loop.target["node"]] if "node" in loop.target else everywhere
    touches = {"nodes": nodes, "kind": _find_consumer_kind(evidence, loop)}
    if loop.cause is not None:
        touches["cause"] = loop.cause
    crowded = evidence.crowd.crowded if evidence.crowd is not None else {}
    if (starvation := crowded.get(loop.target.get("queue", ""))) is not None:
        touches["crowded_by"] = starvation
    return Reading(_build_labels(loop), value, sentence, touches)


def _find_consumer_kind(evidence: Evidence, loop: LoopFacts) -> str | None:
    """Return what consumes the loop's events: the pipeline, or the consumers of its queue."""
    if "application" in loop.target:
        return "pipeline"
    queue = evidence.plant.queues.get(loop.target.get("queue", ""))
    return (queue.kind if queue else None) or ("jobs" if _is_of_jobs(loop) else None)


def _is_of_jobs(loop: LoopFacts) -> bool:
    return loop.law == worker_rate.LAW.name and "plant" not in loop.target


def _select_window(loop: LoopFacts, evidence: Evidence, window_seconds: float) -> list[LedgerTick]:
    """Return the newest ticks within the window; usually all that are read but a few."""
    since, until = evidence.now - window_seconds, evidence.now + AHEAD_SECONDS
    newest = takewhile(lambda tick: tick.at > since, reversed(loop.ticks))
    return [tick for tick in newest if tick.at <= until][::-1]


def _format_loop_name(loop: LoopFacts) -> str:
    return capitalize(describe_loop(loop.name))


def _format_minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"


def _read_oscillation(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for loop in evidence.loops:
        values = [tick.value for tick in _select_window(loop, evidence, window_seconds) if tick.value is not None]
        count = count_reversals(values, loop.swing)
        window = _format_minutes(window_seconds)
        said = (
            f"{_format_loop_name(loop)}: {format_count(count, 'output reversal')} in {window}"
            f" (swings of at least {loop.swing:g})."
        )
        yield _build_reading(evidence, loop, count, said)


def _find_saturated(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for loop in evidence.loops:
        readings = [
            tick
            for tick in _select_window(loop, evidence, window_seconds)
            if tick.limited_by is not None and tick.limited_by not in NOT_AT_THE_LIMIT
        ]
        # The share of the whole window, not of the ticks so far: a young loop has been at its limit only
        # briefly.
        share = 100 * min(1.0, len(readings) * loop.interval_seconds / window_seconds)
        limit = f" ({readings[-1].limited_by})".replace("_", " ") if readings else ""
        window = _format_minutes(window_seconds)
        said = f"{_format_loop_name(loop)}: at its limit{limit} for {share:.0f} % of the last {window}."
        yield _build_reading(evidence, loop, share, said)


def _read_ineffective_actions(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for loop in evidence.loops:
        judged = [tick.verdict for tick in _select_window(loop, evidence, window_seconds) if tick.verdict in JUDGED]
        count = next((at for at, verdict in enumerate(reversed(judged)) if verdict == "effective"), len(judged))
        what = INEFFECTIVE.get(count, f"its last {count} actions had no effect")
        if count and _is_at_rest(loop, evidence.now):
            count, what = 0, f"{what}, and it has requested no change since"
        yield _build_reading(evidence, loop, count, f"{_format_loop_name(loop)}: {what}.")


def _is_at_rest(loop: LoopFacts, now: float) -> bool:
    """Return whether the loop ticks and has, for a while, neither acted nor been kept from acting.

    A law that sets its actuator at each tick has not acted if it only keeps the present value. A level of the ladder
    that stays in force is an action.
    """
    if not loop.ticks:
        return False
    lasts_on = loop.law != ladder.LAW.name and not find_display(loop.law).is_news
    latest_first = pairwise(reversed(loop.ticks))
    wanted = next(
        (tick for tick, before in latest_first if _was_wanted(tick) and not (lasts_on and _is_the_same(before, tick))),
        loop.ticks[0],
    )
    # A loop at rest writes no entry.
    newest = loop.ticks[-1].at if loop.ticked_at is None else loop.ticked_at
    return min(newest, now) - wanted.at >= AT_REST_SECONDS + loop.interval_seconds


def _was_wanted(tick: LedgerTick) -> bool:
    return tick.acted or tick.limited_by not in WANTS_NOTHING


def _is_the_same(before: LedgerTick, tick: LedgerTick) -> bool:
    return tick.acted and tick.limited_by in WANTS_NOTHING and tick.value == before.value


def _harmful(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for loop in evidence.loops:
        count = sum(tick.verdict == "harmful" for tick in _select_window(loop, evidence, window_seconds))
        actions = f"{format_count(count, 'action')} in {_format_minutes(window_seconds)}"
        said = f"{_format_loop_name(loop)}: {actions} made the measurement worse."
        yield _build_reading(evidence, loop, count, said)


def _read_stale_loops(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    """Return how long loops have had no valid measurement.

    For a loop that does not tick, this is unknown: another condition covers it.
    """
    for loop in evidence.loops:
        if not loop.ticks:
            continue
        # A loop at rest writes no entry.
        last = loop.ticks[-1].at if loop.ticked_at is None else loop.ticked_at
        ticks = evidence.now - last <= 3 * loop.interval_seconds + 5
        blind = 0.0 if _advises_elsewhere(loop) else _compute_blind_seconds(loop)
        said = f"{_format_loop_name(loop)}: no valid measurement for {blind:.0f} s."
        yield _build_reading(evidence, loop, blind if ticks else None, said)


def _advises_elsewhere(loop: LoopFacts) -> bool:
    """Return whether other loops report the same attached plant as silent.

    The loops of all its tasks do. The plant has more loops: one for each of its pools, and its ladder.
    """
    of_all = "operator" not in loop.target and loop.law != ladder.LAW.name
    return "plant" in loop.target and not of_all and loop.mode not in Loop.ACTING


def _compute_blind_seconds(loop: LoopFacts) -> float:
    """Return for how long, up to the last tick, every tick was held on a stale measurement."""
    newest = list(takewhile(lambda tick: tick.limited_by == STALE, reversed(loop.ticks)))
    if not newest:
        return 0.0
    first = newest[-1].at if loop.blind_since is None else min(newest[-1].at, loop.blind_since)
    return newest[0].at - first


def _read_silent_loops(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for loop in evidence.loops:
        if loop.ticked_at is None:
            continue
        # The absolute distance: a clock that was set back must not make a loop seem busy for that long.
        late = abs(evidence.now - loop.ticked_at) / loop.interval_seconds
        said = f"{_format_loop_name(loop)}: no tick for {late:.0f} intervals of {loop.interval_seconds:g} s."
        yield _build_reading(evidence, loop, late, said)


def _find_stopped(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    overdue = _compute_overdue_seconds(evidence)
    if overdue is not None:
        cause = "Celery beat, the control worker, or the database is not responding"
        yield Reading({}, overdue, f"No loop has ticked; a tick is {overdue:.0f} s overdue: {cause}.")


def _compute_overdue_seconds(evidence: Evidence) -> float | None:
    """Return the time since the newest tick of all loops, beyond the shortest interval.

    Return None if no loop ever ticked.
    """
    # The absolute distance: a clock that was set back must not make a loop seem to run for that long.
    ages = [abs(evidence.now - loop.ticked_at) for loop in evidence.loops if loop.ticked_at is not None]
    intervals = [loop.interval_seconds for loop in evidence.loops if loop.ticked_at is not None]
    return max(0.0, min(ages) - min(intervals)) if ages else None


def _read_host_overload(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    """Return the share of loops that tick late, or lack a fresh measurement, while processes wait for a core.

    On a host with spare cores they are late for another reason, such as an observer that has ended. The same is true
    while only one part has stopped: the observer, with ticks on time, or all loops at once, with an observer on time.
    """
    load = evidence.load_per_core
    if not evidence.loops or load is None:
        return
    silent_seconds = evidence.silent_seconds or 0.0
    unobserved = silent_seconds > UNOBSERVED_SECONDS
    stopped = (_compute_overdue_seconds(evidence) or 0.0) > STOPPED_SECONDS and silent_seconds < OVERDUE_SECONDS
    count = sum(
        load > 1
        and not stopped
        and (_is_overdue(loop, evidence.now) or (loop.cause == HOST and (loop.is_late or not unobserved)))
        for loop in evidence.loops
    )
    verbs = "ticks late or lacks" if count == 1 else "tick late or lack"
    said = (
        f"{count} of {format_count(len(evidence.loops), 'loop')} {verbs} a measurement because"
        f" the host is overloaded. Its load is {load:.1f} per core."
    )
    yield Reading({}, 100 * count / len(evidence.loops), said)


def _is_overdue(loop: LoopFacts, now: float) -> bool:
    return loop.ticked_at is not None and now - loop.ticked_at > 2 * loop.interval_seconds + OVERDUE_SECONDS


def _find_held(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for loop in evidence.loops:
        if loop.held_since is not None:
            seconds = evidence.now - loop.held_since
            yield _build_reading(
                evidence,
                loop,
                seconds / 60,
                f"{_format_loop_name(loop)}: in mode {loop.mode} for {_format_minutes(seconds)}.",
            )


def _read_ending_overrides(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for row in evidence.plant.overrides:
        if row.expires_at is None or row.lasts_seconds <= MIN_NOTICED_SECONDS:
            continue
        left = row.expires_at - evidence.now
        what, then = _describe_end(row)
        said = f"{what} by {row.owner} expires in {max(0, left):.0f} s{then and f'; {then}'}."
        kinds = {"loop": row.loop, "law": row.law, "queue": row.queue, "node": row.node, "host": row.host}
        places = {kind: place for kind, place in kinds.items() if place}
        yield Reading({"override": str(row.id), "what": what, **places}, left, said)


def _describe_end(row: OverrideStatus) -> tuple[str, str]:
    """Return what ends and what applies then; "" if that is unknown."""
    if row.name == DRAINING:
        return f"Drain of {row.host}", "the host accepts work again"
    if row.name == pausing.INTAKE:
        return f"Intake pause of {row.queue}", "the queue accepts events again"
    if row.name == pausing.CONSUMPTION:
        return f"Consumption pause of {row.queue}", "workers process its events again"
    back = "" if row.instead_of is None else f"the value returns to {row.instead_of}"
    return f"Override of {row.name.replace('_', ' ')} for {row.scope}", back


def _find_ending(
    label: str, noun: str, rows: Sequence[FailureRecord], evidence: Evidence, window: float
) -> Iterator[Reading]:
    for row in rows:
        if evidence.now - window <= row.at <= evidence.now + window:
            why = row.why.strip().rstrip(".") or "no reason recorded"
            subject = str(row.id) if label == "plan" else row.name
            yield Reading({label: subject}, 1.0, f"{noun} {subject} failed: {why}.")


def _plan_failed(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    yield from _find_ending("plan", "Plan", evidence.plans, evidence, window_seconds)


def _run_failed(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    yield from _find_ending("task", "Task", evidence.runs, evidence, window_seconds)


def _format_tries(count: int) -> str:
    return format_count(count, "failed attempt")


def _read_failing_deliveries(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for receiver in evidence.failing:
        tries = [_format_tries(receiver.tries)] if receiver.tries else []
        given_up = [f"no more attempts for {format_count(receiver.given_up, 'message')}"] if receiver.given_up else []
        said = f"Delivery to {receiver.receiver} is failing: {', '.join([*tries, *given_up])}. {receiver.error}"
        # A message that was given up had all of its tries.
        yield Reading({"receiver": receiver.receiver}, max(receiver.tries, 10 if receiver.given_up else 0), said)


def _audit_altered(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    """Return the number of altered audit entries.

    The sentence also says what to do: its readers have not seen this alert before.
    """
    if evidence.audit is None:
        return
    facts = evidence.audit
    if not facts.findings:
        yield Reading({}, 0.0, "The audit log is intact.")
        return
    what = " ".join(facts.texts[:2])
    more = f" {format_count(facts.findings - 2, 'more finding')}." if facts.findings > 2 else ""
    said = (
        f"The audit log was altered: {what}{more} Run manage.py audit verify on the host, compare"
        " with the last"
        " backup, and find out who can write to the database. When you know the cause, record it: manage.py"
        " audit accept --reason."
    )
    yield Reading({}, float(facts.findings), said)


def _audit_unchecked(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    if evidence.audit is not None:
        age = evidence.audit.age_seconds
        said = f"The audit log was last checked {age:.0f} s ago. See the log of the alerter process."
        yield Reading({}, age, said)


def _build_ledger_condition(name: str, help: str, unit: str, read: Any, **more: Any) -> Condition:
    return Condition(name, help, unit, "loop", read, source="ledger", counts=True, scale=None, **more)


ACTUATOR = ("loops.{loop}.actuator",)
CONDITIONS = (
    _build_ledger_condition(
        "loop_oscillation",
        "Number of times that a loop's output reversed direction in the window.",
        "reversals",
        _read_oscillation,
        series=ACTUATOR,
        waits=True,
    ),
    _build_ledger_condition(
        "loop_saturated",
        "Share of the window in which a loop was at its limit.",
        "%",
        _find_saturated,
        series=ACTUATOR,
        maximum=100.0,
        waits=True,
    ),
    _build_ledger_condition(
        "loop_ineffective",
        "Number of consecutive recent actions without effect, for a loop that still acts.",
        "actions",
        _read_ineffective_actions,
        series=ACTUATOR,
        waits=True,
    ),
    _build_ledger_condition(
        "loop_harmful",
        "Number of actions in the window that made the measurement worse.",
        "actions",
        _harmful,
        series=ACTUATOR,
        waits=True,
    ),
    Condition(
        "loop_stale",
        "Time for which a loop has had no valid measurement.",
        "s",
        "loop",
        _read_stale_loops,
        source="ledger",
        waits=True,
        elapses=True,
    ),
    Condition(
        "loop_silent",
        "Number of intervals that a loop has missed.",
        "intervals",
        "loop",
        _read_silent_loops,
        source="records",
        waits=True,
    ),
    Condition(
        "audit_altered",
        "Entries of the audit log that were altered, removed, or inserted.",
        "findings",
        "",
        _audit_altered,
        source="records",
        guards_integrity=True,
    ),
    Condition(
        "audit_unchecked",
        "Time since the last check of the audit log.",
        "s",
        "",
        _audit_unchecked,
        source="records",
        guards_integrity=True,
    ),
    Condition(
        "loops_stopped",
        "Time since the last tick of any loop, minus the shortest interval.",
        "s",
        "",
        _find_stopped,
        source="records",
        waits=True,
        elapses=True,
    ),
    Condition(
        "host_overloaded",
        "Share of loops that tick late or lack a measurement because the host is overloaded.",
        "%",
        "",
        _read_host_overload,
        source="records",
        maximum=100.0,
        waits=True,
    ),
    Condition(
        "loop_held",
        "Time for which a loop has been in mode hold or manual.",
        "min",
        "loop",
        _find_held,
        source="records",
    ),
    Condition(
        "override_ending", "Time until an override expires.", "s", "override", _read_ending_overrides, direction="below"
    ),
    Condition(
        "plan_failed", "Plans that failed in the window.", "plans", "plan", _plan_failed, source="records", counts=True
    ),
    Condition(
        "run_failed",
        "Tasks whose last run failed in the window.",
        "runs",
        "task",
        _run_failed,
        source="records",
        counts=True,
    ),
    Condition(
        "delivery_failing",
        "Maximum number of failed attempts to deliver a message.",
        "attempts",
        "receiver",
        _read_failing_deliveries,
        source="records",
    ),
)
