"""Workers that stay: as many processes of a pool as workers would be at work at once, by Little's law.

A short worker is started once, takes its events and ends. A pool of others has processes that stay, and what
can be set is how many there are. There a *worker* is what one process does in a life of L seconds. Who starts
r of them a second has N = r L of them at work (Little), and that is how many processes there are to be:

    L = max(life_seconds, s)                    s: what one event takes one process
    C = target_utilisation · L / s              events that a worker takes in its life
    N = full workers for what waits and comes   forecast: by `forecast_manager`, with lead L, so about
                                                ⌈(λ + q / L) s / target_utilisation⌉
    N = ⌈rate · L / interval_seconds⌉           thesis: the rate that it has found; and its extra in a backlog

So what waits now, q, is worked off within a life beside what comes, λ a second. There is never fewer than
one: a pool of none would never work again. Where as many are there (or ordered) nothing is done. Without s
nothing can be decided, unless nothing waits and nothing comes.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from controllers.framework.decision import Decision, Expected
from controllers.framework.law import Values
from controllers.framework.reason import because, cause_of, counted, measure, no_action, number
from controllers.worker_rate.shared import ROUNDING, Manager, Start, queue_remark

SHORT, PERMANENT = "short", "permanent"
# What limits a decision that can't be taken, as of the laws of parallelism.
UNMEASURED = "unmeasured"
# Fewer processes are there once some were idle, more within the settling time at least.
FEWER_SECONDS, LEAST_SETTLING_SECONDS = 30.0, 10.0
Method = Callable[[Values, Manager, Values], tuple[Manager, Start]]


def decide(
    parameters: Values, before: Manager, observation: Values, evaluate: Method
) -> tuple[Manager, Decision]:
    """One evaluation by a method; the action's `start` is how many workers there are to be."""
    seconds, length = observation.get("service_seconds"), observation["queue_length"]
    if not seconds and (length or observation["removed"]):
        reason = no_action("how long an event takes is not measured", remarks=[queue_remark(length)])
        return before, Decision(None, reason, {}, UNMEASURED)
    life = max(float(parameters["life_seconds"]), float(seconds or 0.0))
    size = parameters["target_utilisation"] * life / seconds if seconds else parameters["events_per_worker"]
    asked = {**parameters, "events_per_worker": size, "lead_seconds": life, "start_when": "always"}
    # None is under way: what stands takes events on and on, and is counted anew.
    seen = {**observation, "started": 0, "waiting_to_run": 0, "running": None}
    manager, start = evaluate(asked, before, seen)
    if parameters["method"] == "forecast" and manager.arrivals is None:
        # Of one queue length nothing is known that comes: the pool would be taken for one without work.
        reason = no_action("what comes is known from the next check on", remarks=[queue_remark(length)])
        return manager, Decision(None, reason, {}, UNMEASURED)
    return replace(manager, pledged=0.0), _decision(asked, manager, start, observation, life)


def _decision(
    parameters: Values, manager: Manager, start: Start, observation: Values, life_seconds: float
) -> Decision:
    count, present = _workers(parameters, manager, start, life_seconds), observation.get("running")
    terms = {
        **start.terms,
        "workers": count,
        "workers_before": present,
        "life_seconds": life_seconds,
        "events_per_worker": parameters["events_per_worker"],
        "running": present,
    }
    is_measured = bool(observation.get("service_seconds"))
    cause, remarks = _cause(parameters, start, life_seconds, is_measured), _remarks(observation, count)
    if count == present:
        return Decision(None, no_action(cause, remarks=remarks), terms, start.limited_by, float(count))
    change = "" if present is None else f" ({count - round(present):+,})"
    reason = because(f"Set {counted(count, 'worker')}{change}", cause, remarks=remarks)
    expected = _expected(observation, count, life_seconds)
    return Decision({"start": count}, reason, terms, start.limited_by, float(count), expected)


def _workers(parameters: Values, manager: Manager, start: Start, life_seconds: float) -> int:
    """Who starts so many in an interval has them at work for a life; of the forecast, what one life needs."""
    if parameters["method"] == "forecast":
        return max(1, start.count)
    extra = int(parameters["backlog_workers"]) if start.terms.get("backlog") else 0
    lives = life_seconds / float(parameters["interval_seconds"])
    return max(1, math.ceil(manager.rate * lives - ROUNDING) + extra)


def _cause(parameters: Values, start: Start, life_seconds: float, is_measured: bool) -> str:
    """is_measured: whether it is known how long an event takes; else none waits or comes."""
    if start.limited_by is not None or parameters["method"] != "forecast":
        return cause_of(start.reason)
    waiting, coming = start.terms["backlog_events"], start.terms["coming"]
    size = number(round(parameters["events_per_worker"], 1))
    takes = f", in which a worker takes {size}" if is_measured else ""
    what = f"{number(round(waiting, 1))} events wait and {number(round(coming, 1))} come"
    return f"{what} in {measure(life_seconds)} s{takes}"


def _remarks(observation: Values, count: int) -> list[str]:
    seconds = observation.get("service_seconds")
    takes = [f"an event takes {measure(seconds)} s"] if seconds else []
    return [*takes, f"{counted(count, 'worker')} in all"]


def _expected(observation: Values, count: int, life_seconds: float) -> Expected | None:
    """More workers clear what waits within a life; fewer are so many less."""
    present, length = observation.get("running"), float(observation["queue_length"])
    if present is not None and count < present:
        return Expected("tasks", "down", float(present - count), FEWER_SECONDS, before=float(present))
    if length <= 0:
        return None
    within = max(LEAST_SETTLING_SECONDS, 2 * life_seconds)
    return Expected("queue_length", "down", length, within, before=length)
