"""How many short-lived workers a container gets per interval: the manager of Houtman, section 4.2.1.

Every interval (5 s) the manager looks at the queue length q, and at those of the last minute (12 of them):

    more than 4 of them below U/2    →  rate · 0.9
    otherwise, q > U                 →  rate · 1.2     (one step per evaluation: ERRATA E42)
    otherwise                        →  rate

U is the upper limit [events], the rate counts workers per interval. Fractions add up: carry += rate; the
whole part starts, the rest stays. The lower limit comes first, as the section lists it; it is also what
reproduces Tables 4.2-4.4 (E42).

    q > 2U (backlog, 4.2.1.3)               →  one worker more
    waiting to run > its limit (4.2.1.2)    →  none, and the rate stays: the queue grows for want of slots,
                                               not of workers, and more submissions would feed the overload

`start_when` says what the queue length means. `always` is the thesis' model: it measures right after its
workers ran, so nothing waiting does not mean nothing is coming, and workers start at the rate whatever waits.
`waiting`, the default, is for a plant that is measured before they start. There nothing waiting starts none;
what waits is never served slower than by one worker per interval (below U/2 the rate decays to its minimum,
and a few events would wait without end); and no more start than what waits can fill.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controllers.decision import Decision, Expected, Json
from controllers.law import Values
from controllers.parameter import Parameter, read_object, refuse_unknown
from queues.errors import BadInput

# A carry that should be whole may be short of it by rounding: 0.1 added ten times is 0.9999999999999999.
ROUNDING = 1e-9

PARAMETERS = (
    Parameter(
        "events_per_worker", "events", "What one worker takes before it ends.", 5_000, 1, 1e7, "integer"
    ),
    Parameter("upper_limit", "events", "More waiting than this raises the rate.", 1_000, 1, 1e9),
    Parameter("interval_seconds", "s", "Time between two evaluations.", 5.0, 0.1, 3_600.0),
    Parameter(
        "lower_share",
        "share of the upper limit",
        "Less waiting than this share counts as low.",
        0.5,
        0.0,
        1.0,
    ),
    Parameter(
        "raise_factor", "factor", "The rate times this when the upper limit is passed.", 1.2, 1.0, 10.0
    ),
    Parameter(
        "lower_factor", "factor", "The rate times this when the queue was low too often.", 0.9, 0.01, 1.0
    ),
    Parameter(
        "history",
        "evaluations",
        "Queue lengths looked back on; 12 at 5 s are a minute.",
        12,
        1,
        1_000,
        "integer",
    ),
    Parameter(
        "low_count",
        "evaluations",
        "More low ones than this in the history lower the rate.",
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
        "backlog_workers", "workers", "Extra workers per interval in a backlog.", 1, 0, 1_000, "integer"
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
        "initial_rate", "workers per interval", "The rate before the first evaluation.", 1.0, 0.01, 1e4
    ),
    Parameter("minimum_rate", "workers per interval", "The rate never falls below this.", 1.0, 0.01, 1e4),
    Parameter("maximum_rate", "workers per interval", "The rate never rises above this.", 1_000.0, 0.01, 1e4),
    Parameter(
        "start_when",
        "choice",
        "waiting: start what waits needs. always: start at the rate, as in the thesis' model.",
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
)


@dataclass(frozen=True)
class _Manager:
    """The state: workers per interval, the fraction of a worker carried over, and the last queue lengths."""

    rate: float
    carry: float
    history: tuple[float, ...]

    def to_json(self) -> dict[str, Json]:
        return {"rate": self.rate, "carry": self.carry, "history": list(self.history)}


@dataclass(frozen=True)
class _Start:
    """How many workers start, and what kept it from being more."""

    count: int
    because: str
    limited_by: str | None = None


class WorkerRate:
    """The thesis' manager law; see the module for its rules."""

    name = "worker_rate"
    parameters: Sequence[Parameter] = PARAMETERS
    observation: Sequence[Parameter] = OBSERVATION
    actuator: str | None = "start"
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
        """Nothing to raise: any four counts go together."""

    def initial_state(self, parameters: Values) -> Json:
        """The initial rate within its limits, nothing carried, no history."""
        return _Manager(_bounded(parameters, parameters["initial_rate"]), 0.0, ()).to_json()

    def read_state(self, parameters: Values, document: Json) -> Json:
        """A state that was printed before, or None for the first. Raises `BadInput` naming `state.key`."""
        if document is None:
            return self.initial_state(parameters)
        given = read_object(document, "state")
        refuse_unknown(given, ("rate", "carry", "history"), "state")
        for key in ("rate", "carry", "history"):
            if key not in given:
                raise BadInput(f"state.{key}", "is missing; feed back the whole state, or null to begin anew")
        return _Manager(_state_rate(given), _state_carry(given), _state_history(given)).to_json()

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """One evaluation: judge the queue length, set the rate, start the whole part of what has added up."""
        before = _Manager(state["rate"], state["carry"], tuple(state["history"]))
        length = observation["queue_length"]
        history = (*before.history, length)[-int(parameters["history"]) :]
        manager = replace(before, history=history)
        if observation["waiting_to_run"] > parameters["maximum_waiting_to_run"]:
            start = _overloaded(parameters, observation)
        else:
            manager, start = _evaluate(parameters, manager, length)
        terms = _terms(parameters, before, manager, observation)
        return manager.to_json(), _decision(parameters, start, length, terms)


def _bounded(parameters: Values, rate: float) -> float:
    return float(min(max(rate, parameters["minimum_rate"]), parameters["maximum_rate"]))


def _evaluate(parameters: Values, manager: _Manager, length: float) -> tuple[_Manager, _Start]:
    rate, because, limited_by = _new_rate(parameters, manager, length)
    manager = replace(manager, rate=rate)
    if length == 0 and parameters["start_when"] == "waiting":
        # Nothing adds up while nothing waits: else the first event after a quiet hour would start hundreds.
        return replace(manager, carry=0.0), _Start(0, "Nothing waits, so no worker starts.")
    due = manager.carry + rate
    whole = math.floor(due + ROUNDING)
    manager = replace(manager, carry=max(0.0, due - whole))
    return manager, _start(parameters, whole, length, because, limited_by)


def _new_rate(parameters: Values, manager: _Manager, length: float) -> tuple[float, str, str | None]:
    """The rate after this evaluation, why, and the bound it met."""
    limit, low_limit = parameters["upper_limit"], parameters["upper_limit"] * parameters["lower_share"]
    low = sum(past < low_limit for past in manager.history)
    if low > parameters["low_count"]:
        wanted, verb = manager.rate * parameters["lower_factor"], "falls"
        looks = f"{low} of the last {len(manager.history)} looks"
        why = f"{_n(length)} events wait, fewer than {_n(low_limit)} in {looks}"
    elif length > limit:
        wanted, verb = manager.rate * parameters["raise_factor"], "rises"
        why = f"{_n(length)} events wait, over the limit of {_n(limit)}"
    else:
        return (
            manager.rate,
            f"{_n(length)} events wait, within the limit of {_n(limit)}: the rate stays",
            None,
        )
    rate = _bounded(parameters, wanted)
    if rate == manager.rate:
        # Already at a bound: say so, and name it only when it keeps the rate from rising.
        bound = "maximum_rate" if verb == "rises" else None
        return rate, f"{why}: the rate stays at its {'maximum' if bound else 'minimum'} {rate:.2f}", bound
    return rate, f"{why}: the rate {verb} from {manager.rate:.2f} to {rate:.2f}", None


def _start(parameters: Values, whole: int, length: float, because: str, limited_by: str | None) -> _Start:
    """The workers of this interval: the whole part of the rate, what waits needs, the backlog's extra."""
    count, notes = whole, [because]
    if parameters["start_when"] == "waiting":
        fill = math.ceil(length / parameters["events_per_worker"])
        if count > fill:
            count, limited_by = fill, limited_by or "waiting events"
            notes.append(f"what waits fills only {fill}")
        elif count < 1:
            count = 1
            notes.append("what waits gets at least one worker per interval")
    extra = 0
    if length > parameters["backlog_factor"] * parameters["upper_limit"]:
        extra = int(parameters["backlog_workers"])
        notes.append(f"{extra} extra for the backlog")
    if count + extra == 0:
        notes.append("the rate has not added up to a whole worker yet, so none starts")
        return _Start(0, f"{_sentence(notes)}.", limited_by)
    return _Start(count + extra, f"{_sentence(notes)}. {_starting(count + extra)}", limited_by)


def _overloaded(parameters: Values, observation: Values) -> _Start:
    waiting, limit = observation["waiting_to_run"], parameters["maximum_waiting_to_run"]
    because = (
        f"{_n(waiting)} workers are submitted and do not run yet, over the limit of {_n(limit)}: the worker "
        f"hosts are full, so no more start and the rate stays. {_n(observation['queue_length'])} events wait."
    )
    return _Start(0, because, "maximum_waiting_to_run")


def _decision(parameters: Values, start: _Start, length: float, terms: Mapping[str, Any]) -> Decision:
    action = {"start": start.count} if start.count else None
    return Decision(
        action,
        start.because,
        terms,
        start.limited_by,
        float(start.count),
        _expected(parameters, start, length),
    )


def _expected(parameters: Values, start: _Start, length: float) -> Expected | None:
    """Workers remove events: within two intervals as many as wait, or as many as they take."""
    amount = min(float(length), float(start.count * parameters["events_per_worker"]))
    if amount <= 0:
        return None
    return Expected("removed_events", "up", amount, 2.0 * parameters["interval_seconds"])


def _terms(parameters: Values, before: _Manager, after: _Manager, observation: Values) -> dict[str, Any]:
    low_limit = parameters["upper_limit"] * parameters["lower_share"]
    arrived = None
    if before.history:
        arrived = observation["queue_length"] - before.history[-1] + observation["removed"]
    return {
        "rate_before": before.rate,
        "rate": after.rate,
        "rate_per_second": after.rate / parameters["interval_seconds"],
        "carry": after.carry,
        "upper_limit": parameters["upper_limit"],
        "lower_limit": low_limit,
        "low_lengths": sum(past < low_limit for past in after.history),
        "backlog": observation["queue_length"] > parameters["backlog_factor"] * parameters["upper_limit"],
        "arrived": arrived,
        "removed": observation["removed"],
        "started": observation["started"],
        "waiting_to_run": observation["waiting_to_run"],
    }


def _state_number(given: Mapping[str, Any], key: str, declared: Parameter) -> float:
    return float(declared.check(given[key], "state"))


def _state_rate(given: Mapping[str, Any]) -> float:
    return _state_number(
        given, "rate", Parameter("rate", "workers per interval", "", minimum=0.0, maximum=1e4)
    )


def _state_carry(given: Mapping[str, Any]) -> float:
    return _state_number(given, "carry", Parameter("carry", "workers", "", minimum=0.0, maximum=1.0))


def _state_history(given: Mapping[str, Any]) -> tuple[float, ...]:
    lengths = given["history"]
    if not isinstance(lengths, list):
        raise BadInput("state.history", "takes a list of queue lengths")
    declared = Parameter("history", "events", "", maximum=1e15)
    return tuple(declared.check(length, "state") for length in lengths[-1000:])


def _n(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _starting(count: int) -> str:
    return "1 worker starts." if count == 1 else f"{count:,} workers start."


def _sentence(notes: Sequence[str]) -> str:
    text = "; ".join(notes)
    return text[0].upper() + text[1:]
