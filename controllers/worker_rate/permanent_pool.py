"""Permanent workers: as many processes of a pool as workers would run at once, by Little's law.

A short worker starts once, takes its events, and ends. A pool of permanent workers has processes that stay, and only
their number can be set. Here a *worker* represents what one process does in a life of L seconds. A rate of r starts per
second keeps N = r L of them running (Little), and that is the number of processes:

    L = max(life_seconds, s)                    s: processing time of an event in one process
    C = target_utilisation · L / s              events that a worker takes in its life
    N = full workers for backlog and arrivals   forecast: by `forecast_manager`, with lead L, so about
                                                ⌈(λ + q / L) s / target_utilisation⌉
    N = ⌈rate · L / interval_seconds⌉           thesis: the rate that it has found; and its extra in a backlog

The backlog q is therefore worked off within a life, in addition to the arrivals, λ per second. There is always at least
one worker, because an empty pool would never work again. If that number already runs (or is ordered), there is no
action. Without s there is no decision, unless nothing waits and nothing arrives.
"""

import math
from collections.abc import Callable

from msgspec.structs import replace

from controllers.framework.decision import Decision, Expectation
from controllers.framework.reason import cause_of, format_count, format_no_action, format_number, format_reason, measure
from controllers.worker_rate.shared import (
    ROUNDING,
    Manager,
    Start,
    WorkerRateObservation,
    WorkerRateParameters,
    queue_remark,
)

PERMANENT = "permanent"
# The limit of a decision that can't be made, as in the laws of parallelism.
UNMEASURED = "unmeasured"
# There are fewer processes once some were idle, and more within at least the settling time.
FEWER_SECONDS, MIN_SETTLING_SECONDS = 30.0, 10.0
MIN_SERVICE_SECONDS = 1e-9  # Division by a smaller time may overflow.
Method = Callable[[WorkerRateParameters, Manager, WorkerRateObservation], tuple[Manager, Start]]


def decide(
    parameters: WorkerRateParameters, before: Manager, observation: WorkerRateObservation, evaluate: Method
) -> tuple[Manager, Decision]:
    """Run one evaluation by a method; the action's `start` is the number of workers."""
    seconds, length = observation.service_seconds, observation.queue_length
    if not seconds and (length or observation.removed):
        reason = format_no_action("the processing time per event is unknown", remarks=[queue_remark(length)])
        return before, Decision(None, reason, {}, UNMEASURED)
    life = max(parameters.life_seconds, seconds or 0.0)
    size: float = parameters.events_per_worker
    if seconds:
        size = parameters.target_utilisation * life / max(seconds, MIN_SERVICE_SECONDS)
    asked = replace(parameters, events_per_worker=size, lead_seconds=life, start_when="always")
    # None is under way: permanent workers keep taking events and are counted anew.
    seen = replace(observation, started=0, waiting_to_run=0, running=None)
    manager, start = evaluate(asked, before, seen)
    if parameters.method == "forecast" and manager.arrivals is None:
        # A single queue length says nothing about arrivals: the pool would seem to have no work.
        reason = format_no_action("arrivals are unknown until the next check", remarks=[queue_remark(length)])
        return manager, Decision(None, reason, {}, UNMEASURED)
    manager, present = replace(manager, pledged=0.0), observation.running
    if parameters.method == "forecast":
        count = max(1, start.count)  # one life needs this number
    else:
        extra = parameters.backlog_workers if start.terms.get("backlog") else 0
        count = max(1, math.ceil(manager.rate * (life / parameters.interval_seconds) - ROUNDING) + extra)
    terms = {
        **start.terms,
        "workers": count,
        "workers_before": present,
        "life_seconds": life,
        "events_per_worker": size,
        "running": present,
    }
    cause = cause_of(start.reason)
    if start.limited_by is None and parameters.method == "forecast":
        waiting, coming = format_number(round(start.backlog_events, 1)), format_number(round(start.coming, 1))
        cause = f"{waiting} events wait and {coming} arrive in {measure(life)} s"
        if seconds:
            cause = f"{cause}; in this time a worker can process {format_count(round(size, 1), 'event')}"
    takes = [f"an event takes {measure(seconds)} s"] if seconds else []
    remarks = [*takes, f"total: {format_count(count, 'worker')}"]
    if count == present:
        reason = format_no_action(cause, remarks=remarks)
        return manager, Decision(None, reason, terms, start.limited_by, float(count))
    change = "" if present is None else f" ({count - round(present):+,})"
    reason = format_reason(f"Set {format_count(count, 'worker')}{change}", cause, remarks=remarks)
    expected = _build_expectation(observation, count, life)
    return manager, Decision({"start": count}, reason, terms, start.limited_by, float(count), expected)


def _build_expectation(observation: WorkerRateObservation, count: int, life_seconds: float) -> Expectation | None:
    """Return the expected effect: more workers clear the backlog within a life; fewer are so many less."""
    present, length = observation.running, observation.queue_length
    if present is not None and count < present:
        return Expectation("tasks", "down", float(present - count), FEWER_SECONDS, before=float(present))
    if length <= 0:
        return None
    within = max(MIN_SETTLING_SECONDS, 2 * life_seconds)
    return Expectation("queue_length", "down", length, within, before=length)
