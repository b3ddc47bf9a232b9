"""The parts that both methods of the manager law share: parameters, observation, memory, numbers, and reasons."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from common.parameter import value
from controllers.framework.reason import NO_ACTION, format_count, format_number
from controllers.worker_rate.arrival_rate import ArrivalRate
from queues.nodes.node_state import STATES

# Rounding may leave a carry slightly below a whole number: 0.1 added ten times is 0.9999999999999999.
ROUNDING = 1e-9


class WorkerRateParameters(msgspec.Struct, frozen=True, kw_only=True):
    method: Annotated[
        Literal["forecast", "thesis"],
        value(
            "choice",
            "forecast: full workers for expected events. thesis: Houtman's rate, adjusted to the queue length.",
        ),
    ] = "forecast"
    events_per_worker: Annotated[
        int, value("events", "Number of events that a worker processes before it ends.", 1, 1e7)
    ] = 5_000
    upper_limit: Annotated[
        float, value("events", "Allowed queue length. thesis: a longer queue raises the rate.", 1, 1e9)
    ] = 1_000
    interval_seconds: Annotated[float, value("s", "Time between two evaluations.", 0.1, 3_600.0)] = 5.0
    max_wait_seconds: Annotated[
        float, value("s", "forecast: maximum time that events wait to fill a worker.", 0.0, 86_400.0)
    ] = 4.0
    limit_wait_seconds: Annotated[
        float,
        value(
            "s",
            "forecast: wait limit when upper_limit events remain. Above 1.2 times upper_limit, it is "
            "inversely proportional to the remaining events.",
            0.0,
            86_400.0,
        ),
    ] = 60.0
    fill_share: Annotated[
        float,
        value(
            "share of a worker",
            "forecast: minimum share of a full worker; rises toward 1, at most halfway, if workers fill slowly.",
            0.01,
            1.0,
        ),
    ] = 0.82
    lead_seconds: Annotated[
        float, value("s", "forecast: time from the measurement until a started worker runs.", 0.0, 600.0)
    ] = 1.0
    trend_gain: Annotated[float, value("share", "forecast: speed at which the trend follows the error.", 0.0, 1.0)] = (
        0.1
    )
    caution: Annotated[
        float,
        value("mean errors", "forecast: number of mean errors to subtract from the expected arrivals.", 0.0, 10.0),
    ] = 0.4
    lower_share: Annotated[
        float,
        value("share of the upper limit", "thesis: share of the upper limit below which a queue is short.", 0.0, 1.0),
    ] = 0.5
    raise_factor: Annotated[
        float,
        value(
            "factor",
            "thesis: factor that raises the rate if the queue is too long. forecast: factor that raises a cap.",
            1.0,
            10.0,
        ),
    ] = 1.2
    lower_factor: Annotated[
        float, value("factor", "thesis: factor that lowers the rate if the queue was short too often.", 0.01, 1.0)
    ] = 0.9
    history: Annotated[
        int,
        value(
            "evaluations", "Number of recent queue lengths to keep. thesis counts the short ones among them.", 1, 1_000
        ),
    ] = 12
    low_count: Annotated[
        int,
        value("evaluations", "thesis: number of short lengths in the history above which the rate falls.", 0, 1_000),
    ] = 4
    backlog_factor: Annotated[
        float, value("upper limits", "Minimum queue length that counts as a backlog.", 1.0, 1e6)
    ] = 2.0
    backlog_workers: Annotated[int, value("workers", "thesis: extra workers per interval in a backlog.", 0, 1_000)] = 1
    maximum_waiting_to_run: Annotated[
        int, value("workers", "Maximum number of workers that wait to run. Above it, no worker starts.", 0, 1e6)
    ] = 20
    pool_patience: Annotated[
        float,
        value(
            "intervals",
            "forecast: no worker starts while more workers wait than the pool runs in this many intervals.",
            0.1,
            1_000.0,
        ),
    ] = 2.0
    pool_allowance: Annotated[
        int, value("workers", "forecast: minimum number of waiting workers at which the pool counts as full.", 1, 1e6)
    ] = 4
    toobusy_share: Annotated[
        float, value("share", "forecast: factor that lowers the rate per interval on a TOOBUSY node.", 0.01, 1.0)
    ] = 0.7
    initial_rate: Annotated[
        float, value("workers per interval", "thesis: rate before the first evaluation.", 0.01, 10_000.0)
    ] = 1.0
    minimum_rate: Annotated[
        float,
        value(
            "workers per interval", "thesis: minimum rate. forecast: minimum rate of a TOOBUSY node.", 0.01, 10_000.0
        ),
    ] = 1.0
    maximum_rate: Annotated[float, value("workers per interval", "Maximum rate.", 0.01, 1e6)] = 1_000.0
    workers: Annotated[
        Literal["short", "permanent"],
        value(
            "choice", "short: workers end after their events. permanent: workers stay, and the law sets their number."
        ),
    ] = "short"
    life_seconds: Annotated[
        float, value("s", "permanent: period for counting a worker's events and for clearing the backlog.", 1.0, 600.0)
    ] = 10.0
    target_utilisation: Annotated[float, value("share", "permanent: target utilization of a worker.", 0.05, 1.0)] = 0.85
    start_when: Annotated[
        Literal["waiting", "always"],
        value(
            "choice",
            "waiting: start no workers while the queue is empty; thesis: nor more than its events fill. "
            "always: regardless of the queue, as in the thesis model.",
        ),
    ] = "waiting"


class WorkerRateObservation(msgspec.Struct, frozen=True, kw_only=True):
    queue_length: Annotated[float, value("events", "Events waiting in the container now.", 0.0, 1e15)]
    removed: Annotated[float, value("events", "Events removed since the last observation.", 0.0, 1e15)] = 0
    started: Annotated[float, value("workers", "Workers that started running since the last observation.")] = 0
    waiting_to_run: Annotated[float, value("workers", "Workers that are submitted but not yet running.")] = 0
    running: Annotated[float | None, value("workers", "Workers running now, if known.")] = None
    service_seconds: Annotated[
        float | None, value("s", "permanent: processing time of an event in a worker.", 0.0, 1e9)
    ] = None
    oldest_seconds: Annotated[float | None, value("s", "Age of the oldest waiting event, if known.")] = None
    expected_per_second: Annotated[
        float | None, value("events/s", "Forecast arrivals until the next decision, if known.", 0.0, 1e12)
    ] = None
    node_state: Annotated[str | None, value("choice", "State of the container's node, if known.", choices=STATES)] = (
        None
    )
    is_circuit_open: Annotated[
        bool, value("flag", "True while most calls to the handler's destination fail: workers make only test calls.")
    ] = False


class Manager(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the law.

    Both methods use `rate`, `carry`, and `history`. The others belong to the forecast: `arrivals` (None before two
    lengths are known), `executed`, the pool's pace, `cap` while a TOOBUSY node is relieved, `borne`, the node's
    capacity by that, `waited_seconds` while events wait, and `pledged`, the events that workers under way will take.
    """

    rate: Annotated[float, value("workers per interval", "Current rate.", 0.0, 1e16)]
    carry: Annotated[float, value("workers", "Fraction of a worker that is carried over.", 0.0, 1.0, required=True)] = (
        0.0
    )
    history: Annotated[
        tuple[float, ...], value("events", "Queue lengths, oldest first.", 0.0, 1e15, required=True, most=1_000)
    ] = ()
    arrivals: Annotated[ArrivalRate | None, value("estimate", "Estimated arrivals; null if unknown.")] = None
    executed: Annotated[float, value("workers per interval", "Workers that the pool runs per interval.")] = 0.0
    cap: Annotated[float | None, value("workers per interval", "Maximum rate on a TOOBUSY node.", 0.0, 1e16)] = None
    waited_seconds: Annotated[float, value("s", "Time since the last worker started.", 0.0, 1e9)] = 0.0
    pledged: Annotated[float, value("events", "Events assigned to active workers.", 0.0, 1e20)] = 0.0
    borne: Annotated[
        float | None, value("workers per interval", "Assumed capacity of a node that was TOOBUSY.", 0.0, 1e16)
    ] = None
    is_toobusy: Annotated[bool, value("flag", "True if the node was TOOBUSY.")] = False


class Start(msgspec.Struct, frozen=True):
    count: int
    reason: str
    limited_by: str | None
    terms: Mapping[str, Any] = {}
    backlog_events: float = 0.0  # by the forecast, what waits and what comes
    coming: float = 0.0


def clip_rate(parameters: WorkerRateParameters, rate: float) -> float:
    return min(max(rate, parameters.minimum_rate), parameters.maximum_rate)


def split_whole_part(due: float) -> tuple[int, float]:
    whole = math.floor(due + ROUNDING)
    return whole, max(0.0, due - whole)


def count_arrivals(manager: Manager, observation: WorkerRateObservation) -> float | None:
    """Return the events inserted since the last observation: the growth of the queue plus those removed."""
    if not manager.history:
        return None
    return max(0.0, observation.queue_length - manager.history[-1] + observation.removed)


def explain_overload(parameters: WorkerRateParameters, observation: WorkerRateObservation) -> str | None:
    """Return why no worker may start: too many wait to run (4.2.1.2); None if they don't."""
    waiting, limit = observation.waiting_to_run, parameters.maximum_waiting_to_run
    if waiting <= limit:
        return None
    return f"worker hosts are full; {wait_to_run(waiting)}, and the limit is {format_number(limit)}"


def wait_to_run(workers: float) -> str:
    return f"{format_count(workers, 'worker')} wait{'s' if workers == 1 else ''} to run"


def describe_start(count: int) -> str:
    return f"Start {format_count(count, 'worker')}" if count else NO_ACTION


def queue_remark(length: float) -> str:
    return f"queue: {format_count(length, 'event')}"
