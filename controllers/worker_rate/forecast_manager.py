"""The forecasting manager: it starts full workers, by the number of events at the time they run.

C is the number of events that a worker takes (events_per_worker), q the queue length, all in events, once per
interval:

    arrived  = Δq + removed                     into level and trend (`controllers.worker_rate.arrival_rate`)
    pledged  = events of workers under way: C each, less what has been removed since
    found    = q - pledged + forecast(lead)     events waiting when a worker that starts now runs
    certain  = ⌊(q - pledged) / C⌋              workers that are full whatever arrives
    forecast = ⌊found / C + 1 - θ⌋              workers that will be at least θ full
    above    = ⌈(found - low) / C⌉              workers that leave low waiting
    low      = max(L U, 3 δ m)                  the lower limit (lower_share), or three times the mean error
                                                of forecasts, if events may wait:
                                                m = min(1, max_wait_seconds / limit_wait_seconds)
    full     = max(certain, min(forecast, above))

The forecast is therefore fed forward if more than the upper limit U allows would wait; below it only a worker that is
certainly full starts. The backlog (q - pledged) is worked off at once: no rate has to be found by trial. θ is
fill_share f if a worker fills within a few intervals. If it takes more than 7 intervals, an interval of delay costs
little, and an additional event is one that the next worker need not take: with x workers' events per interval,

    θ = f + (1 - f)/2 · max(0, 1 - x/0.15)

The rest is less than a full worker and waits for more events, but not without limit. A rest of r events, the oldest of
them waiting since `age`, gets its worker anyway if, by the next evaluation,

    age  >  max_wait_seconds                                        while r ≤ 1.2 U
    age  >  min(max_wait_seconds, limit_wait_seconds · U / r)       else

U is thus the allowed length of the queue: with a limit of a worker or more, the rest of a worker can fill; with a
smaller one, workers start at a fifth above it. A larger rest waits shorter, in proportion, and nothing waits longer
than max_wait_seconds. A spike of one interval is not expected to recur (`arrival_rate`), and forecast errors are not
fed forward.

Workers that would only wait are not started (4.2.1.2, and the death spiral of B.2.3.1):

    waiting to run > its limit                        →  none
    waiting to run > pool_patience · executed         →  none: the pool runs far fewer than are submitted
    some wait to run                                  →  no more than fill up the greater of these two
    the node is TOOBUSY                               →  a cap, of what ran, times toobusy_share each interval
                                                         and never below minimum_rate; once the node has
                                                         recovered it doubles up to toobusy_share of what ran,
                                                         then rises by raise_factor until it no longer binds

The first worker that starts goes ahead of other queues' workers (`ahead`) if its container's events would otherwise
wait too long for a slot: no worker runs there, and a rest is late or an event is older than max_wait_seconds. A queue
of low priority is thus served while one of high priority has a long backlog, by one worker per container at a time.

Even if all events are pledged, the oldest may wait too long. If the pool has room, slow handlers are the cause, and
raise_factor times as many workers run. If none of a few submitted workers started to run, they may be lost with their
host, and one more is submitted.
"""

import math
from dataclasses import dataclass

from msgspec.structs import replace

from controllers.framework.reason import format_count, format_no_action, format_number, format_reason
from controllers.worker_rate.arrival_rate import ArrivalRate
from controllers.worker_rate.shared import (
    ROUNDING,
    Manager,
    Start,
    WorkerRateObservation,
    WorkerRateParameters,
    count_arrivals,
    describe_start,
    explain_overload,
    explain_pool_delay,
    queue_remark,
    split_whole_part,
    wait_to_run,
)
from queues.nodes.node_state import TOOBUSY

# Constants of the formulas above, tuned on 23 real traces and 12 random ones, at limits from a quarter of a
# worker up.
WRONG, RESTING_LIMITS = 3.0, 1.2
FULLER, SLOW_FILL = 0.5, 0.15


@dataclass(frozen=True)
class _Need:
    """The result of one evaluation, in events, workers, and seconds as in the module's formulas.

    `late` is the reason to start a worker that isn't full; None if there is none.
    """

    found: float
    free: float
    full: int
    rest: float
    age_seconds: float
    patience_seconds: float
    late: str | None
    count: int


def evaluate(
    parameters: WorkerRateParameters, before: Manager, observation: WorkerRateObservation
) -> tuple[Manager, Start]:
    """Run one evaluation: learn from the observation, then start the workers that are needed and can run."""
    manager = _learn(parameters, before, observation)
    need = _need(parameters, manager, observation)
    manager, start = _limit_start(parameters, manager, observation, need)
    manager = _remember(parameters, manager, observation, start.count)
    terms = _build_terms(parameters, before, manager, observation, need)
    ahead = _ahead(parameters, observation, need, start.count)
    return manager, replace(start, terms={**terms, "ahead": ahead})


def _learn(parameters: WorkerRateParameters, before: Manager, observation: WorkerRateObservation) -> Manager:
    history = (*before.history, observation.queue_length)[-parameters.history :]
    cap, borne, is_toobusy = _compute_toobusy_cap(parameters, before, observation)
    started = observation.started
    manager = replace(
        before,
        history=history,
        arrivals=_update_arrivals(parameters, before, observation),
        # Adapt quickly to a faster pool and slowly to a slower one: an interval may have no start.
        executed=max(started, (before.executed + started) / 2),
        pledged=_count_pledged_events(parameters, before, observation),
        cap=cap,
        borne=borne,
        is_toobusy=is_toobusy,
    )
    per_interval = manager.arrivals.level if manager.arrivals else 0.0
    rate = per_interval / parameters.events_per_worker
    return replace(manager, rate=min(rate, parameters.maximum_rate))


def _update_arrivals(
    parameters: WorkerRateParameters, before: Manager, observation: WorkerRateObservation
) -> ArrivalRate | None:
    count = count_arrivals(before, observation)
    if count is None:
        return before.arrivals
    if before.arrivals is None:
        return ArrivalRate(count, recent=(count,))
    return before.arrivals.update(count, parameters.trend_gain)


def _count_pledged_events(
    parameters: WorkerRateParameters, before: Manager, observation: WorkerRateObservation
) -> float:
    """Return the events that workers under way will take.

    If running workers aren't counted, they are assumed to be done.
    """
    size = parameters.events_per_worker
    least = observation.waiting_to_run * size
    running = observation.running
    if running is None:
        return float(least)
    # Workers that started since the last check may have ended, and what they removed isn't counted yet.
    most = least + (running + observation.started) * size
    return float(min(max(before.pledged - observation.removed, least), most))


def _compute_toobusy_cap(
    parameters: WorkerRateParameters, before: Manager, observation: WorkerRateObservation
) -> tuple[float | None, float | None, bool]:
    """Return (cap, borne, is_toobusy) of the manager; None while no node is relieved.

    The cap follows congestion control (Jacobson 1988): fast up to what the node bore before, then step by step.
    """
    if observation.node_state == TOOBUSY:
        ran = max(before.executed, before.rate, observation.started)
        from_rate = before.cap if before.cap is not None else ran
        fewer = from_rate * parameters.toobusy_share
        capped = float(min(max(fewer, parameters.minimum_rate), parameters.maximum_rate))
        return capped, before.borne if before.is_toobusy else fewer, True
    if before.cap is None:
        return None, None, False
    # Step by step: all the waiting events at once would make the node TOOBUSY again.
    raised = max(min(2 * before.cap, before.borne or 0.0), before.cap * parameters.raise_factor)
    if raised >= parameters.maximum_rate:
        return None, None, False
    return float(raised), before.borne, False


def _need(parameters: WorkerRateParameters, manager: Manager, observation: WorkerRateObservation) -> _Need:
    size, length = parameters.events_per_worker, observation.queue_length
    free = max(0.0, length - manager.pledged)
    need = free + _forecast_arrivals(parameters, manager)
    full = _count_full_workers(parameters, manager, free, need)
    there = max(0.0, free - full * size)
    age = _compute_age_seconds(parameters, manager, observation, there)
    patience = _compute_wait_limit_seconds(parameters, there)
    late = _explain_late_rest(parameters, manager, observation, there, age, patience)
    count = full + (late is not None)
    if parameters.start_when == "waiting":
        count = min(count, math.ceil(free / size))
    if late is None and (slow := _explain_extra_workers(parameters, observation, free)) is not None:
        late, count = slow, max(count, _reinforcement(parameters, observation))
    return _Need(need, free, full, there, age, patience, late, count)


def _count_full_workers(parameters: WorkerRateParameters, manager: Manager, free: float, found: float) -> int:
    """Return the full workers: the certain ones, or by the forecast if too many events would wait."""
    size = parameters.events_per_worker
    certain = math.floor(free / size + ROUNDING)
    forecast = math.floor(found / size + 1 - _fill_share(parameters, manager) + ROUNDING)
    above = math.ceil((found - _low(parameters, manager)) / size - ROUNDING)
    return int(max(certain, min(forecast, above)))


def _fill_share(parameters: WorkerRateParameters, manager: Manager) -> float:
    """Return θ, the minimum share of a worker that counts as full."""
    least = parameters.fill_share
    coming = manager.arrivals.predict_ahead(1.0, parameters.caution) if manager.arrivals else 0.0
    slowness = max(0.0, 1.0 - coming / (SLOW_FILL * parameters.events_per_worker))
    return least + (1.0 - least) * FULLER * slowness


def _low(parameters: WorkerRateParameters, manager: Manager) -> float:
    """Return the events that may stay waiting if only a forecast predicts more full workers."""
    most, limit = parameters.max_wait_seconds, parameters.limit_wait_seconds
    patient = min(1.0, most / limit) if limit else 0.0
    wrong_by = manager.arrivals.deviation if manager.arrivals else 0.0
    return float(max(parameters.lower_share * parameters.upper_limit, WRONG * patient * wrong_by))


def _forecast_arrivals(parameters: WorkerRateParameters, manager: Manager) -> float:
    if manager.arrivals is None:
        return 0.0
    intervals = parameters.lead_seconds / parameters.interval_seconds
    return manager.arrivals.predict_ahead(intervals, parameters.caution)


def _compute_age_seconds(
    parameters: WorkerRateParameters, manager: Manager, observation: WorkerRateObservation, rest: float
) -> float:
    """Return the maximum waiting time of the oldest of `rest` events.

    Workers take the oldest first. If other events go to workers, the rest is the newest: no older than the time in
    which as many arrive.
    """
    oldest = observation.oldest_seconds
    age = float(oldest) if oldest is not None else manager.waited_seconds + parameters.interval_seconds
    if manager.arrivals is None or manager.arrivals.level <= 0 or rest >= observation.queue_length:
        return age
    return float(min(age, rest / manager.arrivals.level * parameters.interval_seconds))


def _compute_wait_limit_seconds(parameters: WorkerRateParameters, rest: float) -> float:
    most, limit = parameters.max_wait_seconds, parameters.upper_limit
    if rest <= RESTING_LIMITS * limit + ROUNDING:
        return most
    return min(most, parameters.limit_wait_seconds * limit / rest)


def _explain_late_rest(
    parameters: WorkerRateParameters,
    manager: Manager,
    observation: WorkerRateObservation,
    rest: float,
    age: float,
    patience: float,
) -> str | None:
    """Return why a rest can't wait for a full worker until the next evaluation; None if it can."""
    until_next = parameters.interval_seconds + parameters.lead_seconds
    if rest <= 0 or age + until_next <= patience:
        return None
    events = format_count(rest, "event")
    return f"{events} would exceed the {format_number(patience)} s wait limit before the next check"


def _explain_extra_workers(
    parameters: WorkerRateParameters, observation: WorkerRateObservation, free: float
) -> str | None:
    """Return why more workers start although all events are pledged: workers are slow, or lost."""
    oldest, waiting = observation.oldest_seconds, observation.waiting_to_run
    if oldest is None or oldest <= parameters.max_wait_seconds or free > 0:
        return None
    intervals = max(1.0, parameters.max_wait_seconds / parameters.interval_seconds)
    if waiting == 0 and observation.queue_length > intervals * observation.removed:
        # Events that are removed that soon at the current pace need no further worker.
        return f"the oldest event has waited {format_number(oldest)} s, because workers are slow"
    if 0 < waiting < parameters.pool_allowance and not observation.started + observation.removed:
        return f"the oldest event has waited {format_number(oldest)} s, and no submitted worker has started to run"
    return None


def _ahead(parameters: WorkerRateParameters, observation: WorkerRateObservation, need: _Need, count: int) -> int:
    """Return how many of the workers go ahead of other queues': 1 if events would wait too long."""
    if observation.running:
        return 0
    old = (observation.oldest_seconds or 0.0) > parameters.max_wait_seconds
    return min(count, int(need.late is not None or old))


def _reinforcement(parameters: WorkerRateParameters, observation: WorkerRateObservation) -> int:
    return int(max(1, (observation.running or 0) * (parameters.raise_factor - 1)))


def _limit_start(
    parameters: WorkerRateParameters, manager: Manager, observation: WorkerRateObservation, need: _Need
) -> tuple[Manager, Start]:
    """Return as many of the needed workers as may start now."""
    if (full := explain_overload(parameters, observation)) is not None:
        return manager, Start(0, format_no_action(full), "maximum_waiting_to_run", {})
    if (behind := _explain_backlog(parameters, manager, observation)) is not None:
        return manager, Start(0, format_no_action(behind), "executed workers", {})
    if observation.queue_length == 0 and parameters.start_when == "waiting":
        idle = Start(0, format_no_action("queue is empty"), None, {})
        return replace(manager, carry=0.0, cap=_raise_cap(manager, observation, 0)), idle
    remarks = _build_remarks(parameters, manager, observation)
    count, cause, limited_by = need.count, _cause(parameters, manager, observation, need), None
    if count < need.full:
        limited_by, cause = "waiting events", f"the waiting events fill only {format_count(count, 'worker')}"
    if count > parameters.maximum_rate:
        count, limited_by = math.floor(parameters.maximum_rate), "maximum_rate"
        cause = f"at most {format_count(count, 'worker')} may start per interval, but {need.count:,} are needed"
    if (room := _compute_submission_room(parameters, manager, observation)) is not None and count > room:
        count, limited_by = room, "maximum_waiting_to_run"
        waiting = wait_to_run(observation.waiting_to_run)
        cause = f"{waiting}, so only {room:,} of the {need.count:,} needed workers may be submitted"
    relieved, fewer, node = _release_workers(manager, observation, count)
    if node is not None:
        count, cause, limited_by = fewer, node, "node_state"
    return relieved, Start(count, format_reason(describe_start(count), cause, remarks=remarks), limited_by, {})


def _compute_submission_room(
    parameters: WorkerRateParameters, manager: Manager, observation: WorkerRateObservation
) -> int | None:
    """Return how many more may be submitted while some wait to run; None if none wait."""
    waiting = observation.waiting_to_run
    if waiting == 0:
        return None
    most = max(parameters.maximum_waiting_to_run, parameters.pool_patience * manager.executed)
    return int(max(0, most - waiting))


def _explain_backlog(
    parameters: WorkerRateParameters, manager: Manager, observation: WorkerRateObservation
) -> str | None:
    """Return why no worker may start: the pool runs far fewer than are submitted; None if it keeps up."""
    waiting, runs = observation.waiting_to_run, manager.executed
    if waiting < parameters.pool_allowance or waiting <= parameters.pool_patience * runs:
        return None
    return explain_pool_delay(waiting, runs)


def _release_workers(
    manager: Manager, observation: WorkerRateObservation, count: int
) -> tuple[Manager, int, str | None]:
    """Return the workers of a TOOBUSY or recovering node; fractions of its cap add up."""
    if manager.cap is None:
        return manager, count, None
    whole, carry = split_whole_part(manager.carry + manager.cap)
    if count <= whole:
        # The carry does not accumulate: capacity that isn't used now is not owed later.
        return replace(manager, carry=0.0, cap=_raise_cap(manager, observation, count)), count, None
    state = TOOBUSY if observation.node_state == TOOBUSY else "recovering from TOOBUSY"
    limit = format_number(round(manager.cap, 1))
    why = f"the node is {state} and limited to {limit} workers per interval, but {count:,} are needed"
    return replace(manager, carry=carry), whole, why


def _raise_cap(manager: Manager, observation: WorkerRateObservation, count: int) -> float | None:
    """Return the cap; None once the node has recovered and no more would start without the cap."""
    if manager.cap is None or observation.node_state == TOOBUSY:
        return manager.cap
    return None if count < manager.cap else manager.cap


def _cause(parameters: WorkerRateParameters, manager: Manager, observation: WorkerRateObservation, need: _Need) -> str:
    """Return why this number of workers is needed, if nothing limits it."""
    size, length = format_count(parameters.events_per_worker, "event"), observation.queue_length
    if need.late is not None and need.count:
        return need.late
    if need.full:
        events = format_count(round(need.found, 1), "event")
        return f"{events} would fill {format_count(need.full, 'worker')} of {size}"
    if manager.pledged >= length:
        return f"active workers will process the {format_count(length, 'event')}"
    if need.rest <= 0:
        return f"{format_count(round(need.found, 1), 'event')} would not fill a worker of {size}"
    rest, limit = format_count(need.rest, "event"), format_number(need.patience_seconds)
    return f"the remaining {rest} can wait up to {limit} s for a full worker of {size}"


def _build_remarks(parameters: WorkerRateParameters, manager: Manager, observation: WorkerRateObservation) -> list[str]:
    """Return the values that the number of workers follows from."""
    length = observation.queue_length
    remarks = [queue_remark(length)]
    if manager.pledged > 0:
        remarks.append(f"assigned to active workers: {format_number(min(manager.pledged, length))}")
    if manager.arrivals is not None:
        per_second = manager.arrivals.level / parameters.interval_seconds
        remarks.append(f"arrivals: {format_number(round(per_second, 1))}/s")
    return remarks


def _remember(
    parameters: WorkerRateParameters, manager: Manager, observation: WorkerRateObservation, count: int
) -> Manager:
    waited = manager.waited_seconds + parameters.interval_seconds
    return replace(
        manager,
        pledged=manager.pledged + count * parameters.events_per_worker,
        waited_seconds=0.0 if count or not observation.queue_length else min(waited, 1e9),
    )


def _build_terms(
    parameters: WorkerRateParameters, before: Manager, after: Manager, observation: WorkerRateObservation, need: _Need
) -> dict[str, object]:
    interval = parameters.interval_seconds
    arrivals = after.arrivals
    return {
        "method": "forecast",
        "rate": after.rate,
        "rate_per_second": after.rate / interval,
        "arrived": count_arrivals(before, observation),
        "arrivals_per_second": None if arrivals is None else arrivals.level / interval,
        "trend_per_second": None if arrivals is None else arrivals.trend / interval**2,
        "deviation_per_second": None if arrivals is None else arrivals.deviation / interval,
        "coming": need.found - need.free,
        "found": need.found,
        "backlog_events": need.free,
        "full_workers": need.full,
        "rest": need.rest,
        "age_seconds": need.age_seconds,
        "patience_seconds": need.patience_seconds,
        "upper_limit": parameters.upper_limit,
        "backlog": observation.queue_length > parameters.backlog_factor * parameters.upper_limit,
        "executed": after.executed,
        "cap": after.cap,
        "removed": observation.removed,
        "started": observation.started,
        "waiting_to_run": observation.waiting_to_run,
        "running": observation.running,
        "node_state": observation.node_state,
    }
