"""Threads on virtual time: in the order of a seed, ended by a crash, and waiting for each other."""

from collections.abc import Callable

import pytest

from bench.simulation import context, threads
from bench.simulation.scheduler import ProcessKilled, Scheduler, SimulationStuckError, VirtualProcess

NOW = 1_000.0


@pytest.fixture
def scheduler():
    running = Scheduler(1, NOW)
    context.set_scheduler(running)
    yield running
    context.set_scheduler(None)


def start(scheduler: Scheduler, run: Callable[[], object], name: str = "main") -> VirtualProcess:
    process = VirtualProcess(name, "host")
    scheduler.start_thread(process, run, name)
    return process


def test_threads_run_in_the_order_of_their_virtual_times(scheduler):
    steps = []

    def work(name: str, seconds: float) -> None:
        for _ in range(2):
            scheduler.pause(seconds)
            steps.append((name, scheduler.now - NOW))

    start(scheduler, lambda: work("a", 2.0))
    start(scheduler, lambda: work("b", 3.0))
    scheduler.run(NOW + 10)
    assert steps == [("a", 2.0), ("b", 3.0), ("a", 4.0), ("b", 6.0)]
    assert scheduler.now == NOW + 10


def test_a_crashed_process_does_nothing_more_and_its_last_writes_fail(scheduler):
    steps = []

    def work() -> None:
        try:
            scheduler.pause(5.0)
            steps.append("not reached")
        finally:
            steps.append("cleanup")
            try:
                scheduler.pause(0.0)
            except ProcessKilled:
                steps.append("refused")

    process = start(scheduler, work)
    scheduler.call_at(NOW + 1, lambda: scheduler.kill(process))
    scheduler.run(NOW + 10)
    assert steps == ["cleanup", "refused"]


def test_a_frozen_process_continues_later(scheduler):
    steps = []

    def work() -> None:
        scheduler.pause(1.0)
        steps.append(scheduler.now - NOW)

    process = start(scheduler, work)
    process.frozen_until = NOW + 7
    scheduler.run(NOW + 10)
    assert steps == [pytest.approx(8, abs=0.01)]


def test_a_thread_that_another_one_starts_can_be_awaited(scheduler):
    steps = []

    def work() -> None:
        stop = threads.Event()
        inner = threads.Thread(target=lambda: steps.append(stop.wait(3.0)))
        inner.start()
        scheduler.pause(1.0)
        stop.set()
        inner.join()
        steps.append(scheduler.now - NOW)
        scheduler.pause(1.0)
        steps.append(scheduler.now - NOW)

    start(scheduler, work)
    scheduler.run(NOW + 10)
    assert steps == [True, 1.0, 2.0]


def test_an_event_that_nobody_sets_ends_the_wait_in_time(scheduler):
    steps = []
    start(scheduler, lambda: steps.append((threads.Event().wait(4.0), scheduler.now - NOW)))
    scheduler.run(NOW + 10)
    assert steps == [(False, 4.0)]


def test_a_pool_runs_its_calls_beside_each_other(scheduler):
    steps = []

    def work() -> None:
        with threads.ThreadPoolExecutor() as pool:
            calls = [pool.submit(scheduler.pause, seconds) for seconds in (1.0, 2.0)]
            ended, open_calls = threads.wait(calls, 1.5)
            steps.append((len(ended), len(open_calls)))
        steps.append(round(scheduler.now - NOW, 3))

    start(scheduler, work)
    scheduler.run(NOW + 10)
    assert steps == [(1, 1), 2.0]


def test_a_thread_that_repeats_something_without_time_is_reported(scheduler):
    def work() -> None:
        while True:
            scheduler.pause(0.0)

    start(scheduler, work)
    with pytest.raises(SimulationStuckError):
        scheduler.run(NOW + 10)
