"""The manager law: the number of short-lived workers that a container gets per interval.

Two methods share one state, so that a person may switch between them at any time:

- `forecast`, Weir's own: estimates the arrivals and starts full workers for the events that will wait
  (`controllers.worker_rate.forecast_manager`);
- `thesis`: Houtman's rate, raised and lowered by the queue length (`controllers.worker_rate.thesis_manager`).

If workers are `permanent` (processes of a pool that stay), the same evaluation determines their number
(`controllers.worker_rate.permanent_pool`).

The observation's queue length, removed, started, and waiting to run are required by the contract; the others may be
missing. Without the node's state, the law assumes that the node is well. Without a count of running workers, it assumes
that those that started are done.
"""

import math
from collections.abc import Sequence

from common.errors import BadInput
from common.parameter import Parameter
from controllers.framework.decision import Decision, Expectation, Json
from controllers.framework.law import Law, Remedy, Values
from controllers.worker_rate import forecast_manager, permanent_pool, thesis_manager
from controllers.worker_rate.arrival_rate import ARRIVALS, ArrivalRate
from controllers.worker_rate.permanent_pool import PERMANENT, SHORT
from controllers.worker_rate.shared import Manager, Start, clip_rate
from queues.nodes.node_state import STATES

MIN_SETTLING_SECONDS = 4.0
PARAMETERS = (
    Parameter(
        "method",
        "choice",
        "forecast: full workers for expected events. thesis: Houtman's rate, adjusted to the queue length.",
        "forecast",
        kind="choice",
        choices=("forecast", "thesis"),
    ),
    Parameter(
        "events_per_worker",
        "events",
        "Number of events that a worker processes before it ends.",
        5_000,
        1,
        1e7,
        "integer",
    ),
    Parameter("upper_limit", "events", "Allowed queue length. thesis: a longer queue raises the rate.", 1_000, 1, 1e9),
    Parameter("interval_seconds", "s", "Time between two evaluations.", 5.0, 0.1, 3_600.0),
    Parameter("max_wait_seconds", "s", "forecast: maximum time that events wait to fill a worker.", 4.0, 0.0, 86_400.0),
    Parameter(
        "limit_wait_seconds",
        "s",
        "forecast: wait limit when upper_limit events remain. Above 1.2 times upper_limit, it is inversely "
        "proportional to the remaining events.",
        60.0,
        0.0,
        86_400.0,
    ),
    Parameter(
        "fill_share",
        "share of a worker",
        "forecast: minimum share of a full worker; rises toward 1, at most halfway, if workers fill slowly.",
        0.82,
        0.01,
        1.0,
    ),
    Parameter("lead_seconds", "s", "forecast: time from the measurement until a started worker runs.", 1.0, 0.0, 600.0),
    Parameter("trend_gain", "share", "forecast: speed at which the trend follows the error.", 0.1, 0.0, 1.0),
    Parameter(
        "caution",
        "mean errors",
        "forecast: number of mean errors to subtract from the expected arrivals.",
        0.4,
        0.0,
        10.0,
    ),
    Parameter(
        "lower_share",
        "share of the upper limit",
        "thesis: share of the upper limit below which a queue is short.",
        0.5,
        0.0,
        1.0,
    ),
    Parameter(
        "raise_factor",
        "factor",
        "thesis: factor that raises the rate if the queue is too long. forecast: factor that raises a cap.",
        1.2,
        1.0,
        10.0,
    ),
    Parameter(
        "lower_factor",
        "factor",
        "thesis: factor that lowers the rate if the queue was short too often.",
        0.9,
        0.01,
        1.0,
    ),
    Parameter(
        "history",
        "evaluations",
        "Number of recent queue lengths to keep. thesis counts the short ones among them.",
        12,
        1,
        1_000,
        "integer",
    ),
    Parameter(
        "low_count",
        "evaluations",
        "thesis: number of short lengths in the history above which the rate falls.",
        4,
        0,
        1_000,
        "integer",
    ),
    Parameter("backlog_factor", "upper limits", "Minimum queue length that counts as a backlog.", 2.0, 1.0, 1e6),
    Parameter("backlog_workers", "workers", "thesis: extra workers per interval in a backlog.", 1, 0, 1_000, "integer"),
    Parameter(
        "maximum_waiting_to_run",
        "workers",
        "Maximum number of workers that wait to run. Above it, no worker starts.",
        20,
        0,
        1e6,
        "integer",
    ),
    Parameter(
        "pool_patience",
        "intervals",
        "forecast: no worker starts while more workers wait than the pool runs in this many intervals.",
        2.0,
        0.1,
        1_000.0,
    ),
    Parameter(
        "pool_allowance",
        "workers",
        "forecast: minimum number of waiting workers at which the pool counts as full.",
        4,
        1,
        1e6,
        "integer",
    ),
    Parameter(
        "toobusy_share",
        "share",
        "forecast: factor that lowers the rate per interval on a TOOBUSY node.",
        0.7,
        0.01,
        1.0,
    ),
    Parameter("initial_rate", "workers per interval", "thesis: rate before the first evaluation.", 1.0, 0.01, 1e4),
    Parameter(
        "minimum_rate",
        "workers per interval",
        "thesis: minimum rate. forecast: minimum rate of a TOOBUSY node.",
        1.0,
        0.01,
        1e4,
    ),
    Parameter("maximum_rate", "workers per interval", "Maximum rate.", 1_000.0, 0.01, 1e6),
    Parameter(
        "workers",
        "choice",
        "short: workers end after their events. permanent: workers stay, and the law sets their number.",
        SHORT,
        kind="choice",
        choices=(SHORT, PERMANENT),
    ),
    Parameter(
        "life_seconds",
        "s",
        "permanent: period for counting a worker's events and for clearing the backlog.",
        10.0,
        1.0,
        600.0,
    ),
    Parameter("target_utilisation", "share", "permanent: target utilization of a worker.", 0.85, 0.05, 1.0),
    Parameter(
        "start_when",
        "choice",
        "waiting: start workers for waiting events. always: also for arrivals, as in the thesis model.",
        "waiting",
        kind="choice",
        choices=("waiting", "always"),
    ),
)

OBSERVATION = (
    Parameter("queue_length", "events", "Events waiting in the container now.", maximum=1e15, required=True),
    Parameter("removed", "events", "Events removed since the last observation.", 0, maximum=1e15),
    Parameter("started", "workers", "Workers that started running since the last observation.", 0, maximum=1e12),
    Parameter("waiting_to_run", "workers", "Workers that are submitted but not yet running.", 0, maximum=1e12),
    Parameter("running", "workers", "Workers running now, if known.", maximum=1e12),
    Parameter("service_seconds", "s", "permanent: processing time of an event in a worker.", None, 0.0, 1e9),
    Parameter("oldest_seconds", "s", "Age of the oldest waiting event, if known.", maximum=1e12),
    Parameter("node_state", "choice", "State of the container's node, if known.", kind="choice", choices=STATES),
)
METHODS = {"forecast": forecast_manager.evaluate, "thesis": thesis_manager.evaluate}

# Contents of a state. The forecast's part may be missing: it is learned anew.
STATE = (
    Parameter("rate", "workers per interval", "Current rate.", None, 0.0, 1e16, required=True),
    Parameter("carry", "workers", "Fraction of a worker that is carried over.", None, 0.0, 1.0, required=True),
    Parameter(
        "history", "events", "Queue lengths, oldest first.", None, 0.0, 1e15, "numbers", required=True, most=1_000
    ),
    Parameter("arrivals", "estimate", "Estimated arrivals; null if unknown.", kind="object", items=ARRIVALS),
    Parameter("executed", "workers per interval", "Workers that the pool runs per interval.", 0.0, 0.0, 1e12),
    Parameter("cap", "workers per interval", "Maximum rate on a TOOBUSY node.", None, 0.0, 1e16),
    Parameter("waited_seconds", "s", "Time since the last worker started.", 0.0, 0.0, 1e9),
    Parameter("pledged", "events", "Events assigned to active workers.", 0.0, 0.0, 1e20),
    Parameter("borne", "workers per interval", "Assumed capacity of a node that was TOOBUSY.", None, 0.0, 1e16),
    Parameter("is_toobusy", "flag", "True if the node was TOOBUSY.", False, kind="flag"),
)


class WorkerRate:
    """The manager law, by forecast or by the thesis' rate; see the module."""

    name = "worker_rate"
    parameters: Sequence[Parameter] = PARAMETERS
    observation: Sequence[Parameter] = OBSERVATION
    state: Sequence[Parameter] = STATE
    actuator: str | None = "start"
    counts = True
    remedy = Remedy("workers", lasts=False)
    guard_defaults: Values = {"maximum": 100, "slew_up": 50}

    def check(self, parameters: Values) -> None:
        """Raise `BadInput` if minimum and maximum rate, or history and low count, contradict each other."""
        if parameters["minimum_rate"] > parameters["maximum_rate"]:
            raise BadInput(
                "parameters.minimum_rate",
                f"must be at most maximum_rate ({parameters['maximum_rate']:g}), not {parameters['minimum_rate']:g}",
            )
        if parameters["low_count"] > parameters["history"]:
            raise BadInput(
                "parameters.low_count",
                f"must be at most history ({parameters['history']:g}), not {parameters['low_count']:g}",
            )

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Accept any observation: all counts are consistent."""

    def build_initial_state(self, parameters: Values) -> Json:
        """Return the initial rate within its limits, without carry and history."""
        return Manager(clip_rate(parameters, parameters["initial_rate"]), 0.0, ()).to_json()

    def check_state(self, parameters: Values, state: Values, where: str) -> None:
        """Accept any state: rates and lengths of any size are consistent."""

    def read_value_in_force(self, parameters: Values, observation: Values) -> float | None:
        """Return the number of running workers of a pool; None for short workers, which end on their own."""
        running = observation.get("running") if parameters["workers"] == PERMANENT else None
        return None if running is None else float(running)

    def resume_state(self, parameters: Values, state: Json) -> Json:
        """Return the state without queue lengths: the growth during a hold is not one interval's arrivals."""
        return {**state, "history": []}

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """Run one evaluation by the selected method."""
        before, evaluate = _restore_manager(state), METHODS[parameters["method"]]
        if parameters["workers"] == PERMANENT:
            manager, decision = permanent_pool.decide(parameters, before, observation, evaluate)
            return manager.to_json(), decision
        manager, start = evaluate(parameters, before, observation)
        return manager.to_json(), _build_decision(parameters, start, observation["queue_length"])


LAW: Law = WorkerRate()


def _restore_manager(state: Json) -> Manager:
    arrivals = state["arrivals"]
    return Manager(
        **{
            **state,
            "history": tuple(state["history"]),
            "arrivals": None if arrivals is None else _arrival_rate(arrivals),
        }
    )


def _arrival_rate(arrivals: dict[str, Json]) -> ArrivalRate:
    return ArrivalRate(**{**arrivals, "recent": tuple(arrivals["recent"])})


def _build_decision(parameters: Values, start: Start, length: float) -> Decision:
    action = {"start": start.count} if start.count else None
    expected = _build_expectation(parameters, start, length)
    return Decision(action, start.reason, start.terms, start.limited_by, float(start.count), expected)


def _build_expectation(parameters: Values, start: Start, length: float) -> Expectation | None:
    """Return the events that the workers are expected to remove: those waiting, or as many as they take.

    The effect is expected an interval after the pool ran them all, at its recent pace, and at least `pool_allowance`
    workers per interval. A worker's start, its work, and the next measurement take at least MIN_SETTLING_SECONDS.
    """
    amount = min(float(length), float(start.count * parameters["events_per_worker"]))
    if amount <= 0:
        return None
    pace = max(parameters["pool_allowance"], start.terms.get("executed", 0.0))
    intervals = 1 + math.ceil(start.count / pace)
    within_seconds = max(MIN_SETTLING_SECONDS, intervals * parameters["interval_seconds"])
    return Expectation("removed_events", "up", amount, within_seconds)
