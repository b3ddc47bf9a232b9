"""Conditions of control itself.

They cover loops that oscillate, are at their limit, have no effect, have no valid measurement, or don't tick; and
overrides, plans, tasks, the audit log, and the delivery of alerts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, takewhile

from controllers.framework.guard import count_reversals
from controllers.framework.reason import capitalize, format_count
from controllers.shedding import ladder
from controllers.worker_rate import law as worker_rate
from queues import pausing
from workers.alerts.conditions.condition import Reading, ShippedRule, describe_loop, register_condition
from workers.alerts.conditions.evidence import STALE, Evidence, FailureRecord, LedgerTick, LoopFacts
from workers.alerts.conditions.loop_problems import exclude_ended, find_problem, list_problems
from workers.alerts.conditions.plant_conditions import SAFE
from workers.alerts.lifecycle.inhibition import PROBLEM
from workers.control.kinds.registry import find_display
from workers.control.tick import HOST
from workers.documents import parts
from workers.models import Loop
from workers.steering.scope import CIRCUIT, DRAINING

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
GIVEN_UP_TRIES = 10  # A message that was given up had all of its tries.

register_ledger_condition = partial(
    register_condition,
    label="loop",
    source="ledger",
    series=("loops.{loop}.actuator",),
    scale=None,
    counts=True,
    waits=True,
    stopped_by="loop hold",
)


def _build_reading(evidence: Evidence, loop: LoopFacts, value: float | None, said: str) -> Reading:
    """Return a reading of a loop; a loop that steers the whole plant depends on every node."""
    target = loop.target
    queue = evidence.plant.queues.get(target.get("queue", ""))
    # What consumes the loop's events: the pipeline, or the consumers of its queue.
    kind = "pipeline" if "application" in target else queue.kind if queue else None
    if not kind and loop.law == worker_rate.LAW.name and "plant" not in target:
        kind = "jobs"
    touches: dict[str, object] = {
        "nodes": [target["node"]] if "node" in target else list(evidence.plant.nodes),
        "kind": kind or None,
    }
    if loop.cause is not None:
        touches["cause"] = loop.cause
    if (
        evidence.plant.crowd is not None
        and (starving := evidence.plant.crowd.crowded.get(target.get("queue", ""))) is not None
    ):
        touches["crowded_by"] = starving
    labels = {"loop": loop.name, **{key: target[key] for key in ("queue", "node", "plant") if key in target}}
    return Reading(labels, value, f"{_format_loop_name(loop)}: {said}.", touches)


def _format_loop_name(loop: LoopFacts) -> str:
    return capitalize(describe_loop(loop.name))


def _select_window(loop: LoopFacts, evidence: Evidence, window_seconds: float) -> list[LedgerTick]:
    """Return the newest ticks within the window; usually all that are read but a few."""
    since, until = evidence.now - window_seconds, evidence.now + AHEAD_SECONDS
    newest = takewhile(lambda tick: tick.at > since, reversed(loop.ticks))
    return [tick for tick in newest if tick.at <= until][::-1]


def _select_own_ticks(loop: LoopFacts, evidence: Evidence, window_seconds: float) -> list[LedgerTick]:
    """Return the ticks within the window that belong to no problem that is over."""
    return exclude_ended(_select_window(loop, evidence, window_seconds), list_problems(loop, evidence.plant))


def _find_newest_tick(loop: LoopFacts) -> float:
    """Return when the loop last ticked: a loop at rest writes no entry."""
    return loop.ticks[-1].at if loop.ticked_at is None else loop.ticked_at


def _format_minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"


@register_ledger_condition(
    "Number of times that a loop's output reversed direction in the window.",
    unit="reversals",
    rule=ShippedRule("loop-oscillates", "{loop}: oscillates", 20, 12),
    impact="The actuator oscillates, which costs more than it gains.",
    first_step="Put the loop on hold. Then reduce its gain, or increase its cool-down.",
)
def loop_oscillation(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for loop in evidence.loops:
        values = [tick.value for tick in _select_window(loop, evidence, window_seconds) if tick.value is not None]
        count = count_reversals(values, loop.swing)
        swings = f"(swings of at least {loop.swing:g})"
        reversals = f"{format_count(count, 'output reversal')} in {_format_minutes(window_seconds)}"
        yield _build_reading(evidence, loop, count, f"{reversals} {swings}")


@register_ledger_condition(
    "Share of the window in which a loop was at its limit.",
    unit="%",
    maximum=100.0,
    rule=ShippedRule("loop-saturated", "{loop}: at its limit", 80, 50),
    impact="The loop can't act beyond its limit. Only the next remedy or a higher limit helps.",
    first_step="Check whether the limit is still right. An override raises it temporarily.",
)
def loop_saturated(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for loop in evidence.loops:
        limits = [
            tick.limited_by
            for tick in _select_own_ticks(loop, evidence, window_seconds)
            if tick.limited_by is not None and tick.limited_by not in NOT_AT_THE_LIMIT
        ]
        # The share of the whole window, not of the ticks so far: a young loop has been at its limit only briefly.
        share = 100 * min(1.0, len(limits) * loop.interval_seconds / window_seconds)
        limit = f" ({limits[-1]})".replace("_", " ") if limits else ""
        said = f"at its limit{limit} for {share:.0f} % of the last {_format_minutes(window_seconds)}"
        yield _build_reading(evidence, loop, share, said)


@register_ledger_condition(
    "Number of consecutive recent actions without effect, for a loop that still acts.",
    unit="actions",
    # A few in a row are normal while workers start, and while another remedy is in progress.
    rule=ShippedRule("loop-ineffective", "{loop}: actions have no effect", 10, 1, window_seconds=1800, for_seconds=120),
    impact="Actions of the loop do not change its measurement.",
    first_step="Find the real limit of the target: the node, the handler, or the worker slots.",
)
def loop_ineffective(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for loop in evidence.loops:
        judged = [tick.verdict for tick in _select_own_ticks(loop, evidence, window_seconds) if tick.verdict in JUDGED]
        count = next((at for at, verdict in enumerate(reversed(judged)) if verdict == "effective"), len(judged))
        what = INEFFECTIVE.get(count, f"its last {count} actions had no effect")
        if count and _is_at_rest(loop, evidence.now):
            count, what = 0, f"{what}, and it has requested no change since"
        yield _build_reading(evidence, loop, count, what)


def _is_at_rest(loop: LoopFacts, now: float) -> bool:
    """Return whether the loop ticks and has, for a while, neither acted nor been kept from acting.

    A law that sets its actuator at each tick has not acted if it only keeps the present value. A level of the ladder
    that stays in force is an action.
    """
    if not loop.ticks:
        return False
    lasts_on = loop.law != ladder.LAW.name and not find_display(loop.law).is_news

    def wants_change(tick: LedgerTick, before: LedgerTick) -> bool:
        if not tick.acted or tick.limited_by not in WANTS_NOTHING:
            return tick.limited_by not in WANTS_NOTHING
        return not (lasts_on and tick.value == before.value)

    latest_first = pairwise(reversed(loop.ticks))
    wanted = next((tick for tick, before in latest_first if wants_change(tick, before)), loop.ticks[0])
    return min(_find_newest_tick(loop), now) - wanted.at >= AT_REST_SECONDS + loop.interval_seconds


@register_ledger_condition(
    "Number of actions in the window that made the measurement worse.",
    unit="actions",
    rule=ShippedRule("loop-harmful", "{loop}: actions made the measurement worse", 1, 1, window_seconds=900),
    impact="Actions of the loop changed its measurement in the wrong direction.",
    first_step="Put the loop on hold, and check its recent decisions.",
)
def loop_harmful(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for loop in evidence.loops:
        own = _select_own_ticks(loop, evidence, window_seconds)
        harmful = [tick for tick in own if tick.verdict == "harmful"]
        actions = f"{format_count(len(harmful), 'action')} in {_format_minutes(window_seconds)}"
        reading = _build_reading(evidence, loop, len(harmful), f"{actions} made the measurement worse")
        if harmful:
            problems = list_problems(loop, evidence.plant)
            causes = [find_problem(tick, problems) for tick in harmful]
            # A harmful action outside of all problems has no other cause.
            subject = "" if None in causes else next(cause.subject for cause in causes if cause)
            reading = replace(reading, touches={**reading.touches, PROBLEM: subject})
        yield reading


@register_condition(
    "Time for which a loop has had no valid measurement.",
    unit="s",
    label="loop",
    source="ledger",
    waits=True,
    elapses=True,
    stopped_by="loop hold",
    rule=ShippedRule("loop-blind", "{loop}: no valid measurement", 30, 10),
    impact="The loop takes no action and keeps its last value. It resumes with a valid measurement.",
    first_step="Check whether the node and its agent report.",
)
def loop_stale(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    """Return how long, up to the last tick, every tick was held on a stale measurement.

    For a loop that does not tick, this is unknown: another condition covers it. If an attached plant is silent, the
    loops of all its tasks report that; a loop of one of its pools, or its ladder, doesn't while it only advises.
    """
    for loop in evidence.loops:
        if not loop.ticks:
            continue
        ticks = evidence.now - _find_newest_tick(loop) <= 3 * loop.interval_seconds + 5
        is_one_of_several = "operator" in loop.target or loop.law == ladder.LAW.name
        newest = list(takewhile(lambda tick: tick.limited_by == STALE, reversed(loop.ticks)))
        if not newest or ("plant" in loop.target and is_one_of_several and loop.mode not in Loop.ACTING):
            blind = 0.0
        else:
            first = newest[-1].at if loop.blind_since is None else min(newest[-1].at, loop.blind_since)
            blind = newest[0].at - first
        yield _build_reading(evidence, loop, blind if ticks else None, f"no valid measurement for {blind:.0f} s")


@register_condition(
    "Number of intervals that a loop has missed.",
    unit="intervals",
    label="loop",
    source="records",
    waits=True,
    stopped_by="loop hold",
    rule=ShippedRule("loop-silent", "{loop}: stopped", 6, 3, for_seconds=15),
    impact="The actuator of the loop keeps its last value.",
    first_step="Read the loop's last entry. Search the log of the control worker for its name.",
)
def loop_silent(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for loop in evidence.loops:
        if loop.ticked_at is not None:
            # The absolute distance: a clock that was set back must not make a loop seem busy for that long.
            late = abs(evidence.now - loop.ticked_at) / loop.interval_seconds
            said = f"no tick for {late:.0f} intervals of {loop.interval_seconds:g} s"
            yield _build_reading(evidence, loop, late, said)


@register_condition(
    "Entries of the audit log that were altered, removed, or inserted.",
    unit="findings",
    source="records",
    guards_integrity=True,
    rule=ShippedRule("audit-altered", "The audit log was altered", 1, 0.5, severity="critical"),
    impact="The audit log can't be trusted until the cause is known.",
    first_step="Run manage.py audit verify on the host to list the altered entries.",
)
def audit_altered(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    """Return the number of altered audit entries.

    The sentence also says what to do: its readers have not seen this alert before.
    """
    if (facts := evidence.audit) is None:
        return
    said = "The audit log is intact."
    if facts.findings:
        what = " ".join(facts.texts[:2])
        more = f" {format_count(facts.findings - 2, 'more finding')}." if facts.findings > 2 else ""
        said = (
            f"The audit log was altered: {what}{more} Run manage.py audit verify on the host, compare with the last"
            " backup, and find out who can write to the database. When you know the cause, record it: manage.py"
            " audit accept --reason."
        )
    yield Reading({}, float(facts.findings), said)


@register_condition(
    "Time since the last check of the audit log.",
    unit="s",
    source="records",
    guards_integrity=True,
    rule=ShippedRule("audit-unchecked", "The audit log is not checked", 180, 90, keep_seconds=5),
    impact="Changes to the audit log are currently not detected.",
    first_step="Check whether the alerter runs and the database responds.",
)
def audit_unchecked(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    if evidence.audit is not None:
        age = evidence.audit.age_seconds
        said = f"The audit log was last checked {age:.0f} s ago. See the log of the alerter process."
        yield Reading({}, age, said)


def _compute_overdue_seconds(evidence: Evidence) -> float | None:
    """Return the time since the newest tick of all loops, beyond the shortest interval; None if none ever ticked."""
    ticking = [(loop.ticked_at, loop.interval_seconds) for loop in evidence.loops if loop.ticked_at is not None]
    if not ticking:
        return None
    # The absolute distance: a clock that was set back must not make a loop seem to run for that long.
    newest = min(abs(evidence.now - ticked_at) for ticked_at, _ in ticking)
    return max(0.0, newest - min(interval for _, interval in ticking))


@register_condition(
    "Time since the last tick of any loop, minus the shortest interval.",
    unit="s",
    source="records",
    waits=True,
    needs=(parts.CONTROL,),
    elapses=True,
    rule=ShippedRule("loops-stopped", "Control loops are not running", 20, 10, keep_seconds=10, severity="critical"),
    impact=f"No loop starts workers or moves points. Events wait. {SAFE}",
    first_step="Restart Celery beat and the control worker if they are suspended. Check whether the database responds.",
)
def loops_stopped(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    overdue = _compute_overdue_seconds(evidence)
    if overdue is not None:
        cause = "Celery beat, the control worker, or the database is not responding"
        yield Reading({}, overdue, f"No loop has ticked. A tick is {overdue:.0f} s overdue: {cause}.")


@register_condition(
    "Share of loops that tick late or lack a measurement because the host is overloaded.",
    unit="%",
    source="records",
    maximum=100.0,
    waits=True,
    needs=(parts.CONTROL,),
    rule=ShippedRule(
        "host-overloaded", "The host is overloaded", 50, 20, for_seconds=15, keep_seconds=60, severity="critical"
    ),
    impact=f"Loops act late or not at all; pages may show old values. {SAFE}",
    first_step="Find the process that uses the CPU (top), and stop or move it. Weir recovers automatically.",
)
def host_overloaded(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
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

    def is_slowed(loop: LoopFacts) -> bool:
        late_seconds = 0.0 if loop.ticked_at is None else evidence.now - loop.ticked_at - 2 * loop.interval_seconds
        blind = loop.cause == HOST and (loop.is_late or not unobserved)
        return late_seconds > OVERDUE_SECONDS or blind

    count = sum(map(is_slowed, evidence.loops)) if load > 1 and not stopped else 0
    verbs = "ticks late or lacks" if count == 1 else "tick late or lack"
    said = (
        f"{count} of {format_count(len(evidence.loops), 'loop')} {verbs} a measurement because"
        f" the host is overloaded. Its load is {load:.1f} per core."
    )
    yield Reading({}, 100 * count / len(evidence.loops), said)


@register_condition(
    "Time for which a loop has been in mode hold or manual.",
    unit="min",
    label="loop",
    source="records",
    stopped_by="loop hold",
    rule=ShippedRule("loop-held", "{loop}: in mode hold or manual", 60, 60, severity="notice"),
    impact="The loop does not change the actuator in this mode.",
    first_step="Set the mode to auto when the reason no longer applies.",
)
def loop_held(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for loop in evidence.loops:
        if loop.held_since is not None:
            seconds = evidence.now - loop.held_since
            said = f"in mode {loop.mode} for {_format_minutes(seconds)}"
            yield _build_reading(evidence, loop, seconds / 60, said)


@register_condition(
    "Time until an override expires.",
    unit="s",
    label="override",
    direction="below",
    rule=ShippedRule("override-ending", "{what} expires soon", 120, 120, keep_seconds=0, severity="notice"),
    first_step="Extend the override if its reason still applies.",
)
def override_ending(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for row in evidence.plant.overrides:
        if row.expires_at is None or row.lasts_seconds <= MIN_NOTICED_SECONDS:
            continue
        left = row.expires_at - evidence.now
        # What ends, and what applies then; "" if that is unknown.
        what, then = {
            DRAINING: (f"Drain of {row.host}", "the host accepts work again"),
            pausing.INTAKE: (f"Intake pause of {row.queue}", "the queue accepts events again"),
            pausing.CONSUMPTION: (f"Consumption pause of {row.queue}", "workers process its events again"),
            CIRCUIT: (f"Circuit hold of {row.queue}", "the circuit opens and closes automatically again"),
        }.get(
            row.name,
            (
                f"Override of {row.name.replace('_', ' ')} for {row.scope}",
                "" if row.instead_of is None else f"the value returns to {row.instead_of}",
            ),
        )
        said = f"{what} by {row.owner} expires in {max(0, left):.0f} s{then and f'; {then}'}."
        kinds = {"loop": row.loop, "law": row.law, "queue": row.queue, "node": row.node, "host": row.host}
        places = {kind: place for kind, place in kinds.items() if place}
        yield Reading({"override": str(row.id), "what": what, **places}, left, said)


@register_condition(
    "Time since a manual change without an end passed its reminder.",
    unit="h",
    label="manual_change",
    rule=ShippedRule("manual-change-open", "{what} is still changed manually", 0, 0, keep_seconds=0, severity="notice"),
    first_step="End the change if its reason no longer applies, or set its end.",
)
def manual_change_open(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for change in evidence.plant.hands:
        if change.remind_at is None or change.since is None or evidence.now < change.remind_at:
            continue
        hours = (evidence.now - change.since) / 3_600
        by = f" by {change.owner}" if change.owner else ""
        said = f"{change.title}: {change.value}{by} for {hours:.0f} h, without an end. Effect now: {change.effect}."
        kind, _, name = change.of.partition("/")
        places = {kind: name} if kind in ("loop", "queue", "node", "host") else {}
        yield Reading({"manual_change": change.key, "what": change.title, **places}, hours, said)


def _iterate_failures(
    rows: Sequence[FailureRecord], evidence: Evidence, window: float
) -> Iterator[tuple[int, str, str]]:
    """Return (id, name, why) of what failed in the window."""
    for row in rows:
        if evidence.now - window <= row.at <= evidence.now + window:
            yield row.id, row.name, row.why.strip().rstrip(".") or "no reason recorded"


@register_condition(
    "Plans that failed in the window.",
    unit="plans",
    label="plan",
    source="records",
    counts=True,
    rule=ShippedRule("plan-failed", "Plan {plan} failed", 1, 1, window_seconds=3600),
    impact="Completed moves remain; the other moves were not started.",
    first_step="Read the plan's note. Fix the cause, then propose the plan again.",
)
def plan_failed(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for number, _, why in _iterate_failures(evidence.plans, evidence, window_seconds):
        yield Reading({"plan": str(number)}, 1.0, f"Plan {number} failed: {why}.")


@register_condition(
    "Tasks whose last run failed in the window.",
    unit="runs",
    label="task",
    source="records",
    counts=True,
    rule=ShippedRule("task-failed", "Task {task} failed", 1, 1, window_seconds=7200),
    impact="The result of the task is missing; completed chunks remain.",
    first_step="Read the run's error. Fix the cause, then resume the run.",
)
def run_failed(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for _, name, why in _iterate_failures(evidence.runs, evidence, window_seconds):
        yield Reading({"task": name}, 1.0, f"Task {name} failed: {why}.")


@register_condition(
    "Maximum number of failed attempts to deliver a message.",
    unit="attempts",
    label="receiver",
    source="records",
    rule=ShippedRule("delivery-failing", "Delivery to {receiver} fails", 3, 1),
    impact="Users of this receiver get no notifications. Other receivers are not affected.",
    first_step="Test the receiver, and read its last error.",
)
def delivery_failing(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for row in evidence.failing:
        tries = [format_count(row.tries, "failed attempt")] if row.tries else []
        given_up = [f"no more attempts for {format_count(row.given_up, 'message')}"] if row.given_up else []
        said = f"Delivery to {row.receiver} is failing: {', '.join([*tries, *given_up])}. {row.error}"
        value = max(row.tries, GIVEN_UP_TRIES if row.given_up else 0)
        yield Reading({"receiver": row.receiver}, value, said)
