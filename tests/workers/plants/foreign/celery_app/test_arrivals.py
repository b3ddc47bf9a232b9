"""Arrivals and waits of a pool from counts alone, compared with arrivals whose times are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.plants.foreign.celery_app.broker import QueueLength
from workers.plants.foreign.celery_app.measures import AllConsumers, Arrivals
from workers.plants.foreign.celery_app.remote_control import WorkerPool


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
