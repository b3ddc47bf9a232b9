"""Times between completions of a worker's pool, from events that may arrive late, twice, or not at all."""

import random
from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.plants.foreign.celery_app.far import FakeCelery
from tests.workers.plants.foreign.celery_app.test_celery_plant import ONE, task
from workers.plants.foreign.celery_app.events import PoolCompletions
from workers.plants.foreign.kind import MAX_POOLS

WALL = 1_790_000_000.0


class EventedPool:
    """Processes that each run one task at a time, reported by events of a worker whose clock is `ahead`."""

    def __init__(self, size, run_seconds=0.5, ahead=WALL, late_seconds=0.02, seed=0):
        self.size, self.run_seconds, self.ahead, self.late_seconds = size, run_seconds, ahead, late_seconds
        self.counted, self.now, self.tasks = PoolCompletions(), 100.0, 0
        self.running, self.random, self.lost_ends = [], random.Random(seed), set()
        self.observe()

    def observe(self):
        return self.counted.observe(self.size, self.now, WALL + self.now)

    def run(self, seconds, is_full=True, each=1.0):
        """Run with work for all processes, or for none; return the last observation."""
        until, seen = self.now + seconds, None
        while self.now < until:
            step = min(until, self.now + each)
            self.work(step, is_full)
            self.now = step
            seen = self.observe()
        return seen

    def work(self, until, is_full):
        at = self.now
        while is_full and len(self.running) < self.size:
            self.begin(at)
        while self.running and self.running[0][0] <= until:
            at, task = heappop(self.running)
            if task not in self.lost_ends:
                self.counted.record_end(task, at + self.ahead, at + self.late_seconds)
            if is_full and len(self.running) < self.size:
                self.begin(at + 0.001)

    def begin(self, at):
        self.tasks += 1
        heappush(self.running, (at + self.run_seconds * self.random.uniform(0.8, 1.2), f"t{self.tasks}"))
        self.counted.record_start(f"t{self.tasks}", at + self.ahead, at + self.late_seconds)


@given(
    size=st.sampled_from([1, 2, 3, 4, 9]), ahead=st.floats(-1e6, 1e6), late=st.floats(0.0, 0.2), seed=st.integers(0, 50)
)
def test_a_full_pool_is_measured_at_what_it_brings_whatever_the_clock_and_late_events(size, ahead, late, seed):
    seen = EventedPool(size, ahead=WALL + ahead, late_seconds=late, seed=seed).run(40.0)
    assert seen.per_second == pytest.approx(size / 0.5, rel=0.12)
    assert 30.0 <= seen.full_seconds <= 40.0 + late
    assert seen.seq >= 16


@pytest.mark.parametrize("jump", [-3_600.0, 3_600.0])
def test_a_clock_that_is_set_begins_the_count_anew(jump):
    pool = EventedPool(2)
    before = pool.run(20.0)
    pool.ahead += jump
    after = pool.run(30.0)
    assert after.since > before.since
    assert after.per_second == pytest.approx(4.0, rel=0.1) and after.full_seconds < 31.0


def test_a_process_whose_end_was_not_heard_of_is_taken_for_free_again():
    pool = EventedPool(2)
    pool.run(10.0)
    pool.lost_ends = {task for _, task in pool.running}
    pool.run(40.0)
    idle = pool.run(60.0, is_full=False)
    later = pool.run(60.0, is_full=False)
    assert later.full_seconds == idle.full_seconds


def test_a_worker_that_nobody_observes_is_not_kept_in_mind_for_ever():
    pool = EventedPool(2, run_seconds=0.001)
    since = pool.run(1.0).since
    pool.run(30.0, each=30.0)
    assert pool.run(5.0).since > since
    assert len(pool.counted._places) <= 3


@pytest.fixture
def far():
    return FakeCelery({ONE: 2})


def full(far, plant, seconds):
    """Keep both processes busy with tasks of 0.5 s, one after the other."""
    for second in range(seconds):
        for number, at in ((number, second + number / 2) for number in range(2)):
            far.now = 200.0 + at
            for process in range(2):
                if (second, number) != (0, 0):
                    task(far, f"{2 * second + number - 1}-{process}", "succeeded", runtime=0.5)
                task(far, f"{2 * second + number}-{process}", "started")
        plant.get_topology()
    return plant.get_details().completions


def test_a_pool_whose_processes_all_have_work_says_what_it_completes(far):
    plant = far.plant()
    plant.get_topology()
    [(worker, found)] = full(far, plant, 40).items()
    assert worker == ONE and found.per_second == pytest.approx(4.0, rel=0.05)
    assert found.full_seconds == pytest.approx(40.0, abs=3.0) and found.seq >= 16


def test_of_a_pool_that_can_not_be_set_or_sends_no_events_no_completion_is_said(far):
    assert full(far, far.plant(events="listen"), 3).keys() == {ONE}  # it was started with -E
    far.listener.events.begin_anew(ONE)
    plant = far.plant(events="listen")
    plant.get_topology()
    assert plant.get_details().completions == {}
    far.stats = {"autoscaler": {"max": 4}}
    assert full(far, far.plant(), 3) == {}


def test_of_many_pools_only_some_are_counted_and_it_is_said(far):
    many = FakeCelery({f"celery@{number:03}": 1 for number in range(MAX_POOLS + 3)})
    plant = many.plant()
    plant.get_topology()
    assert "Pools without a concurrency loop: 3." in " ".join(plant.list_missing())
