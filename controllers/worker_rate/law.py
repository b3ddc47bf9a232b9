"""The manager law: the number of short-lived workers that a container gets per interval.

Two methods share one state, so that a person may switch between them at any time:

- `forecast`, Weir's own: estimates the arrivals and starts full workers for the events that will wait
  (`controllers.worker_rate.forecast_manager`);
- `thesis`: Houtman's rate, raised and lowered by the queue length (`controllers.worker_rate.thesis_manager`).

If workers are `permanent` (processes of a pool that stay), the same evaluation determines their number
(`controllers.worker_rate.permanent_pool`).

The observation's queue length, removed, started, and waiting to run are required by the contract; the others may be
missing. Without the node's state, the law assumes that the node is well. Without a count of running workers, it assumes
that those that started are done. While the circuit of the destination is open, neither method is evaluated: one worker
at a time makes test calls, and the lengths that grow meanwhile are not counted as arrivals of one interval.
"""

import math

from msgspec.structs import replace

from common.errors import BadInput
from controllers.framework.decision import Decision, Expectation
from controllers.framework.law import Law, Remedy
from controllers.framework.reason import format_no_action, format_reason
from controllers.worker_rate import forecast_manager, permanent_pool, thesis_manager
from controllers.worker_rate.permanent_pool import PERMANENT
from controllers.worker_rate.shared import (
    Manager,
    Start,
    WorkerRateObservation,
    WorkerRateParameters,
    clip_rate,
    describe_start,
)

MIN_SETTLING_SECONDS = 4.0
METHODS = {"forecast": forecast_manager.evaluate, "thesis": thesis_manager.evaluate}


class WorkerRate(Law[WorkerRateParameters, WorkerRateObservation, Manager]):
    """The manager law, by forecast or by the thesis' rate; see the module."""

    name = "worker_rate"
    Parameters, Observation, State = WorkerRateParameters, WorkerRateObservation, Manager
    actuator = "start"
    counts = True
    remedy = Remedy("workers", lasts=False)
    guard_defaults = {"maximum": 100, "slew_up": 50}

    def check(self, parameters: WorkerRateParameters) -> None:
        """Raise `BadInput` if minimum and maximum rate, or history and low count, contradict each other."""
        if parameters.minimum_rate > parameters.maximum_rate:
            raise BadInput(
                "parameters.minimum_rate",
                f"must be at most maximum_rate ({parameters.maximum_rate:g}), not {parameters.minimum_rate:g}",
            )
        if parameters.low_count > parameters.history:
            raise BadInput(
                "parameters.low_count",
                f"must be at most history ({parameters.history:g}), not {parameters.low_count:g}",
            )

    def start(self, parameters: WorkerRateParameters) -> Manager:
        """Return the initial rate within its limits, without carry and history."""
        return Manager(rate=clip_rate(parameters, parameters.initial_rate))

    def read_value_in_force(self, parameters: WorkerRateParameters, observation: WorkerRateObservation) -> float | None:
        """Return the number of running workers of a pool; None for short workers, which end on their own."""
        return observation.running if parameters.workers == PERMANENT else None

    def resume(self, state: Manager) -> Manager:
        """Return the state without queue lengths: the growth during a hold is not one interval's arrivals."""
        return replace(state, history=())

    def decide(
        self, parameters: WorkerRateParameters, state: Manager, observation: WorkerRateObservation
    ) -> tuple[Manager, Decision]:
        """Run one evaluation by the selected method."""
        evaluate = METHODS[parameters.method]
        if parameters.workers == PERMANENT:
            return permanent_pool.decide(parameters, state, observation, evaluate)
        if observation.is_circuit_open:
            return self.resume(state), _decide_test_call(parameters, observation)
        manager, start = evaluate(parameters, state, observation)
        action = {"start": start.count} if start.count else None
        expected = _build_expectation(parameters, start, observation.queue_length)
        return manager, Decision(action, start.reason, start.terms, start.limited_by, float(start.count), expected)


LAW = WorkerRate()
CIRCUIT_OPEN = "open circuit"


def _decide_test_call(parameters: WorkerRateParameters, observation: WorkerRateObservation) -> Decision:
    """Return one worker for the next test call of an open circuit, unless one is under way.

    More workers would end at once, because the circuit admits them no call. No effect is expected: the call may fail.
    """
    is_under_way = bool(observation.waiting_to_run or observation.running)
    count = int(observation.queue_length > 0 and not is_under_way)
    why = "the circuit of the destination is open; one worker at a time makes test calls"
    reason = format_reason(describe_start(count), why) if count else format_no_action(why)
    terms = {"method": parameters.method}
    return Decision({"start": count} if count else None, reason, terms, CIRCUIT_OPEN, float(count))


def _build_expectation(parameters: WorkerRateParameters, start: Start, length: float) -> Expectation | None:
    """Return the events that the workers are expected to remove: those waiting, or as many as they take.

    The effect is expected an interval after the pool ran them all, at its recent pace, and at least `pool_allowance`
    workers per interval. A worker's start, its work, and the next measurement take at least MIN_SETTLING_SECONDS.
    """
    amount = min(length, float(start.count * parameters.events_per_worker))
    if amount <= 0:
        return None
    pace = max(parameters.pool_allowance, start.terms.get("executed", 0.0))
    intervals = 1 + math.ceil(start.count / pace)
    within_seconds = max(MIN_SETTLING_SECONDS, intervals * parameters.interval_seconds)
    return Expectation("removed_events", "up", amount, within_seconds)
