"""The manager of Houtman, section 4.2.1, and the static configuration that it replaced.

Every interval (5 s) the manager checks the queue length q, and those of the last minute (12 of them):

    more than 4 of them below U/2    →  rate · 0.9
    otherwise, q > U                 →  rate · 1.2     (one step per evaluation: ERRATA E42)
    otherwise                        →  rate

U is the upper limit [events]; the rate counts workers per interval. Fractions add up: carry += rate; the whole part
starts, the rest stays. The lower limit comes first, as the section lists it; this also reproduces Tables 4.2-4.4 (E42).

    q > 2U (backlog, 4.2.1.3)               →  one worker more
    waiting to run > its limit (4.2.1.2)    →  none, and the rate stays: the queue grows for want of slots,
                                               not of workers, and more submissions would feed the overload

`start_when` defines the meaning of the queue length. `always` is the thesis' model: it measures right after its workers
ran, so an empty queue does not mean that nothing arrives, and workers start at the rate regardless of the queue.
`waiting` is for a plant that is measured before they start. An empty queue then starts no worker; waiting events are
never served slower than by one worker per interval (below U/2 the rate decays to its minimum, and a few events would
wait forever); and no more start than the waiting events can fill.

The static configuration ("current system best case", Tables 4.2-4.4) runs the workers of the greatest rate all the
time.
"""

import math

import msgspec
from msgspec.structs import replace

from controllers.framework.reason import format_count, format_no_action, format_number, format_reason
from controllers.worker_rate.shared import (
    Manager,
    Start,
    WorkerRateObservation,
    WorkerRateParameters,
    clip_rate,
    count_arrivals,
    describe_start,
    explain_overload,
    queue_remark,
    split_whole_part,
)


def evaluate(
    parameters: WorkerRateParameters, before: Manager, observation: WorkerRateObservation
) -> tuple[Manager, Start]:
    """Run one evaluation: judge the queue length, set the rate, and start the whole part of the carry."""
    length = observation.queue_length
    manager = replace(before, history=(*before.history, length)[-parameters.history :])
    if (full := explain_overload(parameters, observation)) is not None:
        start = Start(0, format_no_action(full), "maximum_waiting_to_run")
    else:
        rate, cause, limited_by = _compute_new_rate(parameters, manager, length)
        if length == 0 and parameters.start_when == "waiting":
            # Nothing adds up while the queue is empty; otherwise the first event after a quiet hour would start
            # hundreds.
            carry, start = 0.0, Start(0, format_no_action("queue is empty"), None)
        else:
            whole, carry = split_whole_part(manager.carry + rate)
            start = _start(parameters, whole, length, cause, limited_by)
        manager = replace(manager, rate=rate, carry=carry)
    return manager, replace(start, terms=_build_terms(parameters, before, manager, observation))


def _compute_new_rate(
    parameters: WorkerRateParameters, manager: Manager, length: float
) -> tuple[float, str, str | None]:
    """Return the rate after this evaluation, why, and the bound that it reached."""
    limit, low_limit = parameters.upper_limit, parameters.upper_limit * parameters.lower_share
    low, events = sum(past < low_limit for past in manager.history), format_count(length, "event")
    if low > parameters.low_count:
        rate = clip_rate(parameters, manager.rate * parameters.lower_factor)
        checks = f"{low} of the last {len(manager.history)} checks"
        why, bound = f"the queue was under {format_number(low_limit)} events in {checks}", None
    elif length > limit:
        rate = clip_rate(parameters, manager.rate * parameters.raise_factor)
        why, bound = f"the queue of {events} is over the limit of {format_number(limit)}", "maximum_rate"
    else:
        why = f"the queue of {events} is within the limit of {format_number(limit)}"
        return manager.rate, f"{why}, so the rate stays {_scale_to_interval(manager.rate)}", None
    if rate == manager.rate:
        # The rate is at a bound: name the bound only if it keeps the rate from rising.
        return (
            rate,
            f"{why}; the rate is at its {'maximum' if bound else 'minimum'}, {_scale_to_interval(rate)}",
            bound,
        )
    return rate, f"{why}, so the rate changes from {manager.rate:.2f} to {_scale_to_interval(rate)}", None


def _scale_to_interval(rate: float) -> str:
    return f"{rate:.2f} workers per interval"


def _start(parameters: WorkerRateParameters, whole: int, length: float, cause: str, limited_by: str | None) -> Start:
    """Return the workers of this interval: the whole part of the rate, limited by the queue, plus extra."""
    count, causes = whole, [cause]
    if parameters.start_when == "waiting":
        fill = math.ceil(length / parameters.events_per_worker)
        if count > fill:
            count, limited_by = fill, limited_by or "waiting events"
            causes.append(f"the waiting events fill only {format_count(fill, 'worker')}")
        elif count < 1:
            count = 1
            causes.append("at least one worker starts per interval while events wait")
    extra = 0
    if length > parameters.backlog_factor * parameters.upper_limit:
        extra = int(parameters.backlog_workers)
        causes.append(f"{format_count(extra, 'extra worker')} for the backlog")
    if count + extra == 0:
        causes.append("the accumulated rate is below one worker")
    reason = format_reason(describe_start(count + extra), *causes, remarks=[queue_remark(length)])
    return Start(count + extra, reason, limited_by)


def _build_terms(
    parameters: WorkerRateParameters, before: Manager, after: Manager, observation: WorkerRateObservation
) -> dict[str, object]:
    low_limit = parameters.upper_limit * parameters.lower_share
    return {
        "method": "thesis",
        "rate_before": before.rate,
        "rate": after.rate,
        "rate_per_second": after.rate / parameters.interval_seconds,
        "carry": after.carry,
        "upper_limit": parameters.upper_limit,
        "lower_limit": low_limit,
        "low_lengths": sum(past < low_limit for past in after.history),
        "backlog": observation.queue_length > parameters.backlog_factor * parameters.upper_limit,
        "arrived": count_arrivals(before, observation),
        "removed": observation.removed,
        "started": observation.started,
        "waiting_to_run": observation.waiting_to_run,
    }


class Static(msgspec.Struct, frozen=True):
    """The workers per interval that the greatest rate needs, regardless of the queue; fractions add up."""

    workers_per_interval: float
    carry: float = 0.0

    def start(self) -> tuple["Static", int]:
        whole, carry = split_whole_part(self.carry + self.workers_per_interval)
        return replace(self, carry=carry), whole
