"""The waiting that the queueing law predicts from measured batches, against that of simulated queues.

The simulated tasks process events one by one, and report batches only, as the pipeline does. The law sees a topology of
these measures every `TICK_SECONDS`.
"""

import heapq
from bisect import bisect
from dataclasses import dataclass, field

import numpy as np
import pytest

from controllers.framework.law import decide_next, start_state
from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from controllers.parallelism.queueing_law import LAW, observe
from workers.pipeline.status.measures import RETAINED_SECONDS, WorkSample, compute_measures

WINDOW_SECONDS, TICK_SECONDS = 10.0, 20.0
CASES = [(load, cv2) for load in (0.5, 0.7, 0.9) for cv2 in (0.2, 1.0, 4.0)]
TOLERANCE = 0.3


@dataclass
class TaskRecord:
    """The batches of one task by their start, with the sums of their events' waits: all, and that for the batch."""

    starts: list[float] = field(default_factory=list)
    samples: list[WorkSample] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    waits_before: list[float] = field(default_factory=list)

    def add(self, start: float, events: int, seconds: float, wait: float, wait_before: float) -> None:
        elapsed = start - self.starts[-1] if self.starts else None
        self.starts.append(start)
        self.samples.append(WorkSample(elapsed, float(events), events, 0, seconds))
        self.waits.append(wait)
        self.waits_before.append(wait_before)

    def find_between(self, since: float, until: float) -> slice:
        return slice(bisect(self.starts, since), bisect(self.starts, until))


def draw(chance, rate, cv2, service_seconds, seconds):
    arrivals = np.cumsum(chance.exponential(1 / rate, int(rate * seconds)))
    return arrivals, chance.gamma(1 / cv2, service_seconds * cv2, arrivals.size)


def compute_waits(arrivals, services):
    """Return the waits in a queue with one server (Lindley)."""
    steps = np.cumsum(np.concatenate([[0.0], services[:-1] - np.diff(arrivals)]))
    return steps - np.minimum.accumulate(steps)


def run_task(arrivals, services):
    """A task without overhead: when it is done with a batch, it takes everything that has arrived."""
    record, starts, at = TaskRecord(), arrivals + compute_waits(arrivals, services), 0
    waits = starts - arrivals
    while at < arrivals.size:
        end = int(np.searchsorted(arrivals, starts[at], side="right"))
        wait = float(waits[at:end].sum())
        record.add(float(starts[at]), end - at, float(services[at:end].sum()), wait, wait)
        at = end
    return record


def run_micro_batches(draws, overhead_seconds):
    """Tasks start their batches together, and the next batches start when all are done and the overhead is over."""
    records, at, now = [TaskRecord() for _ in draws], [0] * len(draws), overhead_seconds
    sums = [np.concatenate([[0.0], np.cumsum(services)]) for _, services in draws]
    while all(at[task] < arrivals.size for task, (arrivals, _) in enumerate(draws)):
        longest = 0.0
        for task, (arrivals, _) in enumerate(draws):
            end = int(np.searchsorted(arrivals, now))
            taken, seconds = slice(at[task], end), float(sums[task][end] - sums[task][at[task]])
            # An event leaves with its batch, so everything but its own service is waiting.
            before = (end - at[task]) * now - float(arrivals[taken].sum())
            wait = before + (end - at[task]) * seconds - seconds
            records[task].add(now, end - at[task], seconds, wait, before)
            at[task], longest = end, max(longest, seconds)
        now += longest + overhead_seconds
    return records


def see(records, now, overhead_seconds=None, knows_arrivals=True):
    """The topology at that time. The wait for the start of a batch is that of the link."""
    tasks, waited, events = [], 0.0, 0
    for record in records:
        recent = record.find_between(now - WINDOW_SECONDS, now)
        earlier = record.find_between(now - RETAINED_SECONDS, now - WINDOW_SECONDS)
        measures = compute_measures(record.samples[recent], WINDOW_SECONDS, record.samples[earlier])
        tasks.append(measures if knows_arrivals else measures | {"arrival_interval_variance": None})
        waited += sum(record.waits_before[recent])
        events += sum(sample.executions for sample in record.samples[recent])
    operator = MeasuredOperator(
        "work", "operator", len(records), tasks=tuple(tasks), batch_overhead_seconds=overhead_seconds
    )
    source = MeasuredOperator("source", "source", 1, fixed="a source")
    links = (Link("source", "work", waited / events if events else None),)
    return MeasuredTopology("p", now, WINDOW_SECONDS, {"source": source, "work": operator}, links)


def predict(topologies, with_one_more=False, **parameters):
    """The predicted wait at the current tasks, or with one task more, after each decision."""
    values = {parameter.name: parameter.default for parameter in LAW.parameters} | {"bound_seconds": 1e6, **parameters}
    state, waits = start_state(LAW, values), []
    for topology in topologies:
        state, decision = decide_next(LAW, values, state, observe(topology))
        wait = decision.terms["wait_seconds_before"]["work"]
        if with_one_more:
            tasks = topology.operators["work"].parallelism + 1
            wider = {**values, "minimum": tasks, "maximum": tasks}
            wait = decide_next(LAW, wider, state, observe(topology))[1].action["expected_wait_seconds"]["work"]
        waits.append(wait or np.inf)
    constant = (topologies[0].operators["work"].batch_overhead_seconds or 0.0) / 2
    return constant + float(np.median(waits[len(waits) // 4 :]))


def mean_wait(records):
    events = sum(sample.executions for record in records for sample in record.samples)
    return sum(sum(record.waits) for record in records) / events


def observed(records, seconds, *more):
    return [see(records, now, *more) for now in np.arange(RETAINED_SECONDS, seconds, TICK_SECONDS)]


@pytest.mark.parametrize(("load", "cv2"), CASES)
def test_the_wait_in_front_of_partitioned_tasks_with_and_without_the_learned_coefficient(load, cv2):
    chance, service_seconds, seconds = np.random.default_rng(7), 0.005, 1_200.0
    records = [run_task(*draw(chance, load / service_seconds, cv2, service_seconds, seconds)) for _ in range(2)]
    seen = observed(records, 0.95 * seconds)
    for use_correction in (False, True):
        assert predict(seen, use_correction=use_correction) == pytest.approx(mean_wait(records), rel=TOLERANCE)


def run_pool(arrivals, services, tasks):
    """Processes with one queue take an event each (M/G/k), as in a Celery app; each event is a batch."""
    records, free = [TaskRecord() for _ in range(tasks)], [(0.0, task) for task in range(tasks)]
    for arrival, service in zip(arrivals.tolist(), services.tolist(), strict=True):
        at, task = heapq.heappop(free)
        start = max(at, arrival)
        records[task].add(start, 1, service, start - arrival, start - arrival)
        heapq.heappush(free, (start + service, task))
    return records


@pytest.mark.parametrize(("load", "cv2"), CASES)
def test_the_wait_in_front_of_a_pool_with_one_queue_by_the_learned_coefficient(load, cv2):
    chance, service_seconds, seconds, tasks = np.random.default_rng(8), 0.02, 1_000.0, 4
    records = run_pool(*draw(chance, tasks * load / service_seconds, cv2, service_seconds, seconds), tasks)
    predicted = predict(observed(records, 0.95 * seconds, None, False))
    assert predicted == pytest.approx(mean_wait(records), rel=TOLERANCE)


@pytest.mark.parametrize(("load", "cv2"), CASES)
def test_the_wait_for_micro_batches_now_and_with_one_task_more(load, cv2):
    chance, service_seconds, overhead_seconds, tasks, seconds = np.random.default_rng(9), 0.001, 0.3, 2, 900.0

    def run(count):
        rate = tasks * load / service_seconds / count
        draws = [draw(chance, rate, cv2, service_seconds, seconds) for _ in range(count)]
        return run_micro_batches(draws, overhead_seconds)

    records = run(tasks)
    seen = observed(records, 0.95 * seconds, overhead_seconds)
    assert predict(seen) == pytest.approx(mean_wait(records), rel=TOLERANCE)
    assert predict(seen, with_one_more=True) == pytest.approx(mean_wait(run(tasks + 1)), rel=TOLERANCE)
