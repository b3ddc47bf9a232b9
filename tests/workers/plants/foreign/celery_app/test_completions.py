"""What a pool is given and completes, from counts and from events that may arrive late, twice, or not at all."""

import random
from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.plants.foreign.celery_app.far import FakeCelery
from tests.workers.plants.foreign.celery_app.test_celery_plant import ONE, task
from workers.plants.foreign.celery_app.broker import QueueLength
from workers.plants.foreign.celery_app.events import PoolCompletions
from workers.plants.foreign.celery_app.measures import AllConsumers, Arrivals
from workers.plants.foreign.celery_app.remote_control import WorkerPool
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


def observed(came, started, until, step=1.0):
    """Observe every `step` seconds. came, started: sorted times."""
    arrivals, at = Arrivals(), 0.0
    while at <= until:
        begun = sum(each <= at for each in started)
        arrivals.observe(at, begun, sum(each <= at for each in came) - begun)
        at += step
    return arrivals


def steady(per_second, since, until):
    count = int((until - since) * per_second)
    return [since + (number + 0.5) / per_second for number in range(count)]


@pytest.mark.parametrize("per_second", [0.2, 3.0, 40.0])
def test_the_rate_of_a_steady_load_is_known(per_second):
    came = steady(per_second, 0.0, 200.0)
    assert observed(came, came, 200.0).per_second == pytest.approx(per_second, rel=0.12)


def test_a_load_that_jumps_is_known_two_seconds_later():
    came = steady(2.0, 0.0, 60.0) + steady(24.0, 60.0, 62.0)
    assert observed(came, came, 62.0).per_second == pytest.approx(24.0, rel=0.1)


def test_a_load_that_ends_fades_away():
    came = steady(1.0, 0.0, 60.0)
    assert observed(came, came, 200.0).per_second < 0.25


@given(st.integers(1, 40), st.floats(0.5, 20.0))
def test_the_age_of_the_first_that_waits_is_known_to_an_interval(waiting, per_second):
    came = steady(per_second, 0.0, 60.0)
    started = came[: max(0, len(came) - waiting)]
    truth = 60.0 - came[len(started)]
    assert abs(observed(came, started, 60.0).oldest_seconds - truth) <= 1.0 + 1.0 / per_second


def purged(came_per_second, before, after, ends, under_way=0.0):
    """Observe tasks that arrive evenly and of which some start; at 60 s only `after` of `before` wait."""
    arrivals, begun, waiting = Arrivals(), 0, before
    for at in range(ends):
        waiting = after if at == 60 else waiting
        begun += came_per_second if at < 60 else came_per_second - 2
        waiting += 0 if at < 60 else 2
        arrivals.observe(float(at), begun, waiting, under_way)
    return arrivals


@pytest.mark.parametrize("before, after, under_way", [(100_000, 0, 0.0), (100_000, 500, 64.0), (100, 40, 64.0)])
def test_a_purged_queue_hides_neither_the_load_nor_what_waits_since(before, after, under_way):
    arrivals = purged(10, before, after, 120, under_way)
    assert arrivals.per_second == pytest.approx(10, rel=0.15)
    if not after:
        assert arrivals.oldest_seconds == pytest.approx(12, abs=2)  # 120 wait, at 10/s


WORKER = "celery@one"


def pool(begun, queues=("mail",)):
    return WorkerPool(
        worker=WORKER,
        pid=7,
        processes=4,
        implementation="prefork",
        fixed=None,
        queues=queues,
        total={"work": begun},
        uptime_seconds=None,
        prefetch=16,
    )


def demand(consumers, at, begun, waiting):
    """Return the demand once per second; waiting None: the broker reports that the queue does not exist."""
    lengths = {} if waiting is None else {"mail": QueueLength(waiting)}
    return consumers.observe(at, [pool(begun)], {WORKER}, lengths, {WORKER: 0})[WORKER]


def test_a_queue_that_is_away_with_its_node_brings_no_load_when_it_is_there_again():
    """RabbitMQ reports a queue whose node is away as not found; all of it is back later."""
    consumers = AllConsumers()
    for second in range(60):
        demand(consumers, float(second), 2 * second, 500)
    for second in range(60, 70):
        demand(consumers, float(second), 118, None)
    rates = [demand(consumers, float(second), 118 + 2 * (second - 70), 500).per_second for second in range(70, 90)]
    assert max(rates) < 4.0
    assert rates[-1] == pytest.approx(2.0, rel=0.2)
