"""What comes to workers is counted from whole lengths of their queues, also where one is away for a time."""

import pytest

from workers.plants.foreign.celery_app.broker import QueueLength
from workers.plants.foreign.celery_app.remote_control import WorkerPool
from workers.plants.foreign.celery_app.takers import AllTakers

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


def demand(takers, at, begun, waiting):
    """What is seen of the queue once a second; None: the broker says that there is no such queue."""
    lengths = {} if waiting is None else {"mail": QueueLength(waiting)}
    return takers.observe(at, [pool(begun)], {WORKER}, lengths, {WORKER: 0})[WORKER]


def test_a_queue_that_is_away_with_its_node_brings_no_load_when_it_is_there_again():
    """RabbitMQ says that a queue whose node is away is not found; all of it is there again later."""
    takers = AllTakers()
    for second in range(60):
        demand(takers, float(second), 2 * second, 500)
    for second in range(60, 70):
        demand(takers, float(second), 118, None)
    rates = [
        demand(takers, float(second), 118 + 2 * (second - 70), 500).per_second for second in range(70, 90)
    ]
    assert max(rates) < 4.0
    assert rates[-1] == pytest.approx(2.0, rel=0.2)


def test_a_queue_that_was_deleted_and_made_anew_begins_with_nothing_waiting():
    takers = AllTakers()
    for second in range(60):
        demand(takers, float(second), 2 * second, 500)
    demand(takers, 60.0, 120, None)
    for second in range(61, 90):
        found = demand(takers, float(second), 120 + 2 * (second - 60), 0)
    assert found.per_second == pytest.approx(2.0, rel=0.2)
    assert found.oldest_seconds == 0.0
