"""The forecasting manager: it starts full workers, by the number of events at the time they run.

C is the number of events that a worker takes (events_per_worker), q the queue length, all in events, once per interval:

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

The forecast of the queue by time of day (`expected_per_second`, of the next minutes) is an average over a minute, which
says less about the next second than the last ones do. It serves while no arrivals were counted, and for permanent
workers, which should exist before a ramp: there the greater forecast counts.

The forecast is therefore fed forward if more than the upper limit U allows would wait; below it only a worker that is
certainly full starts. More workers may start than the waiting events can fill: if only as many started, a load of x
events per interval would always leave x waiting, even above U. With `start_when` *waiting*, nothing starts while the
queue is empty. The backlog (q - pledged) is worked off at once: no rate has to be found by trial. θ is fill_share f if
a worker fills within a few intervals. If it takes more than 7 intervals, an interval of delay costs little, and an
additional event is one that the next worker need not take: with x workers' events per interval,

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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    queue_remark,
    split_whole_part,
    wait_to_run,
)
from queues.nodes.node_state import TOOBUSY

# Constants of the formulas above, tuned on 23 real traces and 12 random ones, at limits from a quarter of a worker up.
WRONG, RESTING_LIMITS = 3.0, 1.2
FULLER, SLOW_FILL = 0.5, 0.15


def evaluate(
    parameters: WorkerRateParameters, before: Manager, observation: WorkerRateObservation
) -> tuple[Manager, Start]:
    """Run one evaluation: learn from the observation, then start the workers that are needed and can run."""
    evaluation = _Evaluation(parameters, observation, _learn(parameters, before, observation))
    need = evaluation.compute_need()
    manager, start = evaluation.limit_start(need)
    waited = manager.waited_seconds + parameters.interval_seconds
    manager = replace(
        manager,
        pledged=manager.pledged + start.count * parameters.events_per_worker,
        waited_seconds=0.0 if start.count or not observation.queue_length else min(waited, 1e9),
    )
    ahead = 0
    if not observation.running:
        # One worker goes ahead of other queues' if events would wait too long.
        is_old = (observation.oldest_seconds or 0.0) > parameters.max_wait_seconds
        ahead = min(start.count, int(need.late is not None or is_old))
    terms = _build_terms(parameters, before, manager, observation, need)
    coming = need.found - need.free
    return manager, replace(start, terms={**terms, "ahead": ahead}, backlog_events=need.free, coming=coming)


def _learn(parameters: WorkerRateParameters, before: Manager, observation: WorkerRateObservation) -> Manager:
    arrivals, count = before.arrivals, count_arrivals(before, observation)
    if count is not None and arrivals is None:
        arrivals = ArrivalRate(count, recent=(count,))
    elif count is not None and arrivals is not None:
        arrivals = arrivals.update(count, parameters.trend_gain)
    size, started = parameters.events_per_worker, observation.started
    # If running workers aren't counted, they are assumed to be done.
    pledged = least = observation.waiting_to_run * size
    if observation.running is not None:
        # Workers that started since the last check may have ended, and what they removed isn't counted yet.
        most = least + (observation.running + started) * size
        pledged = min(max(before.pledged - observation.removed, least), most)
    cap, borne, is_toobusy = _compute_toobusy_cap(parameters, before, observation)
    return replace(
        before,
        rate=min((arrivals.level if arrivals else 0.0) / size, parameters.maximum_rate),
        history=(*before.history, observation.queue_length)[-parameters.history :],
        arrivals=arrivals,
        # Adapt quickly to a faster pool and slowly to a slower one: an interval may have no start.
        executed=max(started, (before.executed + started) / 2),
        pledged=pledged,
        cap=cap,
        borne=borne,
        is_toobusy=is_toobusy,
    )


def _compute_toobusy_cap(
    parameters: WorkerRateParameters, before: Manager, observation: WorkerRateObservation
) -> tuple[float | None, float | None, bool]:
    """Return (cap, borne, is_toobusy) of the manager; None while no node is relieved.

    The cap follows congestion control (Jacobson 1988): fast up to what the node bore before, then step by step.
    """
    if observation.node_state == TOOBUSY:
        ran = max(before.executed, before.rate, observation.started)
        fewer = (ran if before.cap is None else before.cap) * parameters.toobusy_share
        capped = min(max(fewer, parameters.minimum_rate), parameters.maximum_rate)
        return capped, before.borne if before.is_toobusy else fewer, True
    if before.cap is None:
        return None, None, False
    # Step by step: all the waiting events at once would make the node TOOBUSY again.
    raised = max(min(2 * before.cap, before.borne or 0.0), before.cap * parameters.raise_factor)
    return (None, None, False) if raised >= parameters.maximum_rate else (raised, before.borne, False)


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


@dataclass(frozen=True)
class _Evaluation:
    parameters: WorkerRateParameters
    observation: WorkerRateObservation
    manager: Manager

    def compute_need(self) -> _Need:
        parameters, observation, arrivals = self.parameters, self.observation, self.manager.arrivals
        size, interval_seconds = parameters.events_per_worker, parameters.interval_seconds
        free = found = max(0.0, observation.queue_length - self.manager.pledged)
        found += self._predict_arrivals()
        full = self._count_full_workers(free, found)
        rest = max(0.0, free - full * size)
        # Workers take the oldest events first. If other events go to workers, the rest is the newest: no older than
        # the time in which as many arrive.
        oldest = observation.oldest_seconds
        age = self.manager.waited_seconds + interval_seconds if oldest is None else oldest
        if arrivals is not None and arrivals.level > 0 and rest < observation.queue_length:
            age = min(age, rest / arrivals.level * interval_seconds)
        patience, limit = parameters.max_wait_seconds, parameters.upper_limit
        if rest > RESTING_LIMITS * limit + ROUNDING:
            patience = min(patience, parameters.limit_wait_seconds * limit / rest)
        late = None
        if rest > 0 and age + interval_seconds + parameters.lead_seconds > patience:
            limit_words = f"the {format_number(patience)} s wait limit"
            late = f"{format_count(rest, 'event')} would exceed {limit_words} before the next check"
        count = full + (late is not None)
        if late is None and (slow := self._explain_extra_workers(free)) is not None:
            late = slow
            count = max(count, int(max(1, (observation.running or 0) * (parameters.raise_factor - 1))))
        return _Need(found, free, full, rest, age, patience, late, count)

    def _predict_arrivals(self) -> float:
        """Return the events that arrive until a worker runs."""
        parameters, arrivals = self.parameters, self.manager.arrivals
        expected = (self.observation.expected_per_second or 0.0) * parameters.lead_seconds
        if arrivals is None:
            return expected
        counted = arrivals.predict_ahead(parameters.lead_seconds / parameters.interval_seconds, parameters.caution)
        return max(counted, expected) if parameters.workers == "permanent" else counted

    def _count_full_workers(self, free: float, found: float) -> int:
        """Return the full workers: the certain ones, or by the forecast if too many events would wait."""
        parameters, arrivals, size = self.parameters, self.manager.arrivals, self.parameters.events_per_worker
        coming = arrivals.predict_ahead(1.0, parameters.caution) if arrivals else 0.0
        slowness = max(0.0, 1.0 - coming / (SLOW_FILL * size))
        least_fill = parameters.fill_share + (1.0 - parameters.fill_share) * FULLER * slowness  # θ
        most, limit = parameters.max_wait_seconds, parameters.limit_wait_seconds
        patient = min(1.0, most / limit) if limit else 0.0
        wrong_by = arrivals.deviation if arrivals else 0.0
        low = max(parameters.lower_share * parameters.upper_limit, WRONG * patient * wrong_by)
        certain = math.floor(free / size + ROUNDING)
        forecast = math.floor(found / size + 1 - least_fill + ROUNDING)
        above = math.ceil((found - low) / size - ROUNDING)
        return max(certain, min(forecast, above))

    def _explain_extra_workers(self, free: float) -> str | None:
        """Return why more workers start although all events are pledged: workers are slow, or lost."""
        parameters, observation = self.parameters, self.observation
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

    def limit_start(self, need: _Need) -> tuple[Manager, Start]:
        """Return as many of the needed workers as may start now."""
        parameters, observation, manager = self.parameters, self.observation, self.manager
        if (full := explain_overload(parameters, observation)) is not None:
            return manager, Start(0, format_no_action(full), "maximum_waiting_to_run")
        waiting, runs = observation.waiting_to_run, manager.executed
        if waiting >= parameters.pool_allowance and waiting > parameters.pool_patience * runs:
            # The pool runs far fewer than are submitted.
            full = f"worker hosts are full; {wait_to_run(waiting)}, and only {format_number(runs)} start per interval"
            return manager, Start(0, format_no_action(full), "executed workers")
        if observation.queue_length == 0 and parameters.start_when == "waiting":
            idle = Start(0, format_no_action("queue is empty"), None)
            return replace(manager, carry=0.0, cap=self._raise_cap(0)), idle
        count, cause, limited_by = need.count, self._explain(need), None
        if count > parameters.maximum_rate:
            count, limited_by = math.floor(parameters.maximum_rate), "maximum_rate"
            cause = f"at most {format_count(count, 'worker')} may start per interval, but {need.count:,} are needed"
        most = max(parameters.maximum_waiting_to_run, parameters.pool_patience * runs)
        if waiting and count > (room := int(max(0, most - waiting))):
            count, limited_by = room, "maximum_waiting_to_run"
            cause = f"{wait_to_run(waiting)}, so only {room:,} of the {need.count:,} needed workers may be submitted"
        if (cap := manager.cap) is not None:
            # A TOOBUSY or recovering node; fractions of its cap add up.
            whole, carry = split_whole_part(manager.carry + cap)
            if count <= whole:
                # The carry does not accumulate: capacity that isn't used now is not owed later.
                manager = replace(manager, carry=0.0, cap=self._raise_cap(count))
            else:
                state = TOOBUSY if observation.node_state == TOOBUSY else "recovering from TOOBUSY"
                limit = format_number(round(cap, 1))
                cause = f"the node is {state} and limited to {limit} workers per interval, but {count:,} are needed"
                manager, count, limited_by = replace(manager, carry=carry), whole, "node_state"
        reason = format_reason(describe_start(count), cause, remarks=self._build_remarks())
        return manager, Start(count, reason, limited_by)

    def _raise_cap(self, count: int) -> float | None:
        """Return the cap; None once the node has recovered and no more would start without the cap."""
        cap = self.manager.cap
        if cap is None or self.observation.node_state == TOOBUSY:
            return cap
        return None if count < cap else cap

    def _explain(self, need: _Need) -> str:
        size, length = format_count(self.parameters.events_per_worker, "event"), self.observation.queue_length
        if need.late is not None and need.count:
            return need.late
        if need.full:
            events = format_count(round(need.found, 1), "event")
            return f"{events} would fill {format_count(need.full, 'worker')} of {size}"
        if self.manager.pledged >= length:
            return f"active workers will process the {format_count(length, 'event')}"
        if need.rest <= 0:
            return f"{format_count(round(need.found, 1), 'event')} would not fill a worker of {size}"
        rest, limit = format_count(need.rest, "event"), format_number(need.patience_seconds)
        return f"the remaining {rest} can wait up to {limit} s for a full worker of {size}"

    def _build_remarks(self) -> list[str]:
        length, manager = self.observation.queue_length, self.manager
        remarks = [queue_remark(length)]
        if manager.pledged > 0:
            remarks.append(f"assigned to active workers: {format_number(min(manager.pledged, length))}")
        if manager.arrivals is not None:
            per_second = manager.arrivals.level / self.parameters.interval_seconds
            remarks.append(f"arrivals: {format_number(round(per_second, 1))}/s")
        return remarks


def _build_terms(
    parameters: WorkerRateParameters, before: Manager, after: Manager, observation: WorkerRateObservation, need: _Need
) -> Mapping[str, Any]:
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
