"""Who fills the pool is known within some seconds, and does not change with each worker that ends."""

import pytest

from tests.workers.snapshots import snapshot_of
from workers.documents.queues import SlotHolder
from workers.snapshot.starvation import Starvation

QUEUES = ("mail", "orders", "video")


def pool(slots=4, **busy):
    """A snapshot with so many workers of each queue."""
    queues = {name: {"kind": "jobs", "containers": {"n1": {"workers_busy": busy.get(name, 0)}}} for name in QUEUES}
    queues["clicks"] = {"kind": "pipeline", "containers": {}}
    return snapshot_of({"totals": {"worker_slots": slots, "workers_busy": sum(busy.values())}, "queues": queues})


def followed_from(seconds, *snapshots, starvation):
    """What is known at last, of snapshots every two seconds."""
    found = None
    for number, snapshot in enumerate(snapshots):
        found = starvation.follow(snapshot, seconds + 2.0 * number)
    return found


def followed(*snapshots, starvation=None):
    return followed_from(0.0, *snapshots, starvation=starvation or Starvation())


def test_the_queue_with_most_workers_of_a_full_pool_crowds_the_others():
    assert followed(*[pool(mail=4)] * 20) == SlotHolder(queue="mail", crowded={"orders": "mail", "video": "mail"})


@pytest.mark.parametrize(
    "busy", [{}, {"mail": 2}, {"mail": 1, "orders": 1, "video": 2}, {"mail": 2, "orders": 1}], ids=str
)
def test_nobody_crowds_a_pool_that_is_not_full_or_fairly_shared(busy):
    found = followed(*[pool(**busy)] * 30)
    assert found is None or found.queue == "video"


def test_two_that_are_slow_do_not_explain_each_other():
    found = followed(*[pool(mail=2, orders=2)] * 30)
    assert found is not None and set(found.crowded) == {"video"}


def test_it_ends_when_its_workers_are_done_and_the_others_have_had_time_to_catch_up():
    starvation = Starvation()
    followed(*[pool(mail=4)] * 20, starvation=starvation)
    catching_up = followed_from(40.0, *[pool(orders=4)] * 3, starvation=starvation)
    assert catching_up is not None and catching_up.crowded["orders"] == "mail"
    assert followed_from(46.0, *[pool(mail=1)] * 80, starvation=starvation) is None


def test_who_crowds_now_waits_for_nobody():
    starvation = Starvation()
    followed(*[pool(mail=4)] * 20, starvation=starvation)
    found = followed_from(40.0, *[pool(orders=4)] * 30, starvation=starvation)
    assert found == SlotHolder(queue="orders", crowded={"mail": "orders", "video": "orders"})


def test_where_nothing_is_known_nobody_is_named():
    starvation = Starvation()
    assert followed(*[pool(mail=4)] * 20, starvation=starvation) is not None
    assert starvation.follow(None, 100.0) is None
    assert starvation.follow(pool(slots=0), 101.0) is None
