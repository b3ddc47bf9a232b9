"""How many short-lived workers a container gets per interval: the manager.

Two methods, over one state, so that a person may change from one to the other at any time:

- `forecast`, ours: estimates what arrives and starts full workers for what will wait
  (`controllers.worker_rate.forecast_manager`);
- `thesis`: Houtman's rate, raised and lowered by the queue length (`controllers.worker_rate.thesis_manager`).

Where workers are `permanent` (processes of a pool that stay), the same evaluation says how many there are to
be (`controllers.worker_rate.permanent_pool`).

The observation's length, removed, started and waiting to run are the contract's. The others may be missing:
a law that doesn't get the node's state takes it to be well, and without a count of workers at work it takes
those that began to run to be done.
"""

import math
from collections.abc import Sequence

from controllers.framework.decision import Decision, Expected, Json
from controllers.framework.law import Law, Remedy, Values
from controllers.framework.parameter import Parameter
from controllers.worker_rate import forecast_manager, permanent_pool, thesis_manager
from controllers.worker_rate.arrival_rate import ARRIVALS, ArrivalRate
from controllers.worker_rate.permanent_pool import PERMANENT, SHORT
from controllers.worker_rate.shared import Manager, Start, bounded
from queues.errors import BadInput
from queues.nodes.node_state import STATES

LEAST_SETTLING_SECONDS = 4.0
PARAMETERS = (
    Parameter(
        "method",
        "choice",
        "forecast: full workers for what will wait. thesis: Houtman's rate, by the queue length alone.",
        "forecast",
        kind="choice",
        choices=("forecast", "thesis"),
    ),
    Parameter(
        "events_per_worker", "events", "What one worker takes before it ends.", 5_000, 1, 1e7, "integer"
    ),
    Parameter(
        "upper_limit",
        "events",
        "The length that may wait. thesis: more waiting than this raises the rate.",
        1_000,
        1,
        1e9,
    ),
    Parameter("interval_seconds", "s", "Time between two evaluations.", 5.0, 0.1, 3_600.0),
    Parameter(
        "max_wait_seconds",
        "s",
        "forecast: no event waits longer than this for a worker to be full.",
        4.0,
        0.0,
        86_400.0,
    ),
    Parameter(
        "limit_wait_seconds",
        "s",
        "forecast: what is over the upper limit by a fifth waits shorter than this, in proportion.",
        60.0,
        0.0,
        86_400.0,
    ),
    Parameter(
        "fill_share",
        "share of a worker",
        "forecast: a worker that finds this share counts as full; where workers fill slowly, half way to 1.",
        0.82,
        0.01,
        1.0,
    ),
    Parameter(
        "lead_seconds",
        "s",
        "forecast: from the measurement until a worker that is started runs.",
        1.0,
        0.0,
        600.0,
    ),
    Parameter("trend_gain", "share", "forecast: how quickly the trend follows the error.", 0.1, 0.0, 1.0),
    Parameter(
        "caution",
        "mean errors",
        "forecast: so many of its mean errors are taken off what is expected to come.",
        0.4,
        0.0,
        10.0,
    ),
    Parameter(
        "lower_share",
        "share of the upper limit",
        "thesis: less waiting than this share counts as low.",
        0.5,
        0.0,
        1.0,
    ),
    Parameter(
        "raise_factor",
        "factor",
        "thesis: the rate times this when the upper limit is passed. forecast: how a cap rises.",
        1.2,
        1.0,
        10.0,
    ),
    Parameter(
        "lower_factor",
        "factor",
        "thesis: the rate times this when the queue was low too often.",
        0.9,
        0.01,
        1.0,
    ),
    Parameter(
        "history",
        "evaluations",
        "Queue lengths remembered, and counted in thesis; 12 at 5 s are a minute.",
        12,
        1,
        1_000,
        "integer",
    ),
    Parameter(
        "low_count",
        "evaluations",
        "thesis: more low ones than this in the history lower the rate.",
        4,
        0,
        1_000,
        "integer",
    ),
    Parameter(
        "backlog_factor",
        "upper limits",
        "More waiting than this many upper limits is a backlog.",
        2.0,
        1.0,
        1e6,
    ),
    Parameter(
        "backlog_workers",
        "workers",
        "thesis: extra workers per interval in a backlog.",
        1,
        0,
        1_000,
        "integer",
    ),
    Parameter(
        "maximum_waiting_to_run",
        "workers",
        "With more workers submitted but not yet running, none is started.",
        20,
        0,
        1e6,
        "integer",
    ),
    Parameter(
        "pool_patience",
        "intervals",
        "forecast: none is started while more wait to run than begin to in so many intervals.",
        2.0,
        0.1,
        1_000.0,
    ),
    Parameter(
        "pool_allowance",
        "workers",
        "forecast: fewer than this waiting to run are never a full pool.",
        4,
        1,
        1e6,
        "integer",
    ),
    Parameter(
        "toobusy_share",
        "share",
        "forecast: per interval on a TOOBUSY node, the rate falls to this share of itself.",
        0.7,
        0.01,
        1.0,
    ),
    Parameter(
        "initial_rate",
        "workers per interval",
        "thesis: the rate before the first evaluation.",
        1.0,
        0.01,
        1e4,
    ),
    Parameter(
        "minimum_rate",
        "workers per interval",
        "thesis: the rate never falls below this; forecast: nor does a TOOBUSY node's.",
        1.0,
        0.01,
        1e4,
    ),
    Parameter("maximum_rate", "workers per interval", "The rate never rises above this.", 1_000.0, 0.01, 1e6),
    Parameter(
        "workers",
        "choice",
        "short: each ends after its events. permanent: they stay; as many as start are there.",
        SHORT,
        kind="choice",
        choices=(SHORT, PERMANENT),
    ),
    Parameter(
        "life_seconds",
        "s",
        "permanent: what one worker does is counted over this, and what waits is worked off within it.",
        10.0,
        1.0,
        600.0,
    ),
    Parameter(
        "target_utilisation",
        "share",
        "permanent: of its life, what a worker is to be at work.",
        0.85,
        0.05,
        1.0,
    ),
    Parameter(
        "start_when",
        "choice",
        "waiting: start what waits needs. always: also for what is only coming, as in the thesis' model.",
        "waiting",
        kind="choice",
        choices=("waiting", "always"),
    ),
)

OBSERVATION = (
    Parameter("queue_length", "events", "Events waiting in the container now.", maximum=1e15, required=True),
    Parameter("removed", "events", "Events removed since the last observation.", 0, maximum=1e15),
    Parameter("started", "workers", "Workers that began to run since the last observation.", 0, maximum=1e12),
    Parameter("waiting_to_run", "workers", "Workers submitted that do not run yet.", 0, maximum=1e12),
    Parameter("running", "workers", "Workers at work now, where they are counted.", maximum=1e12),
    Parameter("service_seconds", "s", "permanent: what one event takes one worker.", None, 0.0, 1e9),
    Parameter("oldest_seconds", "s", "Age of the oldest event that waits, where it is known.", maximum=1e12),
    Parameter(
        "node_state",
        "choice",
        "State of the node that is read, where it is known.",
        kind="choice",
        choices=STATES,
    ),
)
METHODS = {"forecast": forecast_manager.evaluate, "thesis": thesis_manager.evaluate}

# What a state holds. The forecast's part may be missing: it is learned anew.
STATE = (
    Parameter("rate", "workers per interval", "The rate.", None, 0.0, 1e16, required=True),
    Parameter(
        "carry", "workers", "The fraction of a worker that is carried over.", None, 0.0, 1.0, required=True
    ),
    Parameter(
        "history",
        "events",
        "Queue lengths, oldest first.",
        None,
        0.0,
        1e15,
        "numbers",
        required=True,
        most=1_000,
    ),
    Parameter("arrivals", "estimate", "What arrives; null: not known.", kind="object", items=ARRIVALS),
    Parameter("executed", "workers per interval", "What the pool runs.", 0.0, 0.0, 1e12),
    Parameter("cap", "workers per interval", "What a TOOBUSY node gets.", None, 0.0, 1e16),
    Parameter("waited_seconds", "s", "Since the last worker started.", 0.0, 0.0, 1e9),
    Parameter("pledged", "events", "What workers under way will take.", 0.0, 0.0, 1e20),
    Parameter(
        "borne", "workers per interval", "What a node that was TOOBUSY is taken to bear.", None, 0.0, 1e16
    ),
    Parameter("is_toobusy", "flag", "Whether the node was TOOBUSY.", False, kind="flag"),
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
        """Raise `BadInput` when minimum and maximum rate, or history and low count, contradict."""
        if parameters["minimum_rate"] > parameters["maximum_rate"]:
            raise BadInput(
                "parameters.minimum_rate",
                f"takes at most maximum_rate ({parameters['maximum_rate']:g}), "
                f"not {parameters['minimum_rate']:g}",
            )
        if parameters["low_count"] > parameters["history"]:
            raise BadInput(
                "parameters.low_count",
                f"takes at most history ({parameters['history']:g}), not {parameters['low_count']:g}",
            )

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Nothing to raise: any counts go together."""

    def initial_state(self, parameters: Values) -> Json:
        """The initial rate within its limits, nothing carried, no history."""
        return Manager(bounded(parameters, parameters["initial_rate"]), 0.0, ()).to_json()

    def check_state(self, parameters: Values, state: Values, where: str) -> None:
        """Nothing to raise: rates and lengths of any size go together."""

    def in_force(self, parameters: Values, observation: Values) -> float | None:
        """The workers of a pool stay; short ones end by themselves."""
        running = observation.get("running") if parameters["workers"] == PERMANENT else None
        return None if running is None else float(running)

    def resumed(self, parameters: Values, state: Json) -> Json:
        """Without the queue lengths seen: the growth of a whole hold is no arrival of one interval."""
        return {**state, "history": []}

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """One evaluation by the method that is chosen."""
        before, evaluate = _manager(state), METHODS[parameters["method"]]
        if parameters["workers"] == PERMANENT:
            manager, decision = permanent_pool.decide(parameters, before, observation, evaluate)
            return manager.to_json(), decision
        manager, start = evaluate(parameters, before, observation)
        return manager.to_json(), _decision(parameters, start, observation["queue_length"])


LAW: Law = WorkerRate()


def _manager(state: Json) -> Manager:
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


def _decision(parameters: Values, start: Start, length: float) -> Decision:
    action = {"start": start.count} if start.count else None
    expected = _expected(parameters, start, length)
    return Decision(action, start.reason, start.terms, start.limited_by, float(start.count), expected)


def _expected(parameters: Values, start: Start, length: float) -> Expected | None:
    """Workers remove events: as many as wait, or as many as they take.

    An interval after the pool took them all: it is trusted to take what it took lately, and no fewer than
    `pool_allowance` workers an interval. However short that is, a worker's start, its work and the next
    measurement take LEAST_SETTLING_SECONDS.
    """
    amount = min(float(length), float(start.count * parameters["events_per_worker"]))
    if amount <= 0:
        return None
    pace = max(parameters["pool_allowance"], start.terms.get("executed", 0.0))
    intervals = 1 + math.ceil(start.count / pace)
    within_seconds = max(LEAST_SETTLING_SECONDS, intervals * parameters["interval_seconds"])
    return Expected("removed_events", "up", amount, within_seconds)
