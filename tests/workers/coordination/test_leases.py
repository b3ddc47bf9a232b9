"""Leases on a real server."""

import threading
from contextlib import contextmanager

import pytest
import redis

from queues import keys
from tests.waiting import MAX_SECONDS, until
from workers.coordination import leases
from workers.coordination.leases import RENEWAL, Lease, LeaseGroup

SOON = 0.001  # seconds between two renewals, of a lease that lasts for much longer


def expire(control: redis.Redis, name: str) -> None:
    """End a lease as the server does when its time is over."""
    control.pexpire(keys.LEASE.build(name), 0)


def until_renewed(control: redis.Redis, name: str) -> None:
    """Wait for a renewal, which sets the lease's time back to its own length."""
    control.pexpire(keys.LEASE.build(name), 3_600_000)
    until(lambda: 0 < control.pttl(keys.LEASE.build(name)) <= 30_000)


def test_each_acquisition_gets_a_greater_fencing_number_also_after_expiry(control):
    number = Lease(control, "loop:1", 30).acquire()
    assert 0 < control.pttl(keys.LEASE.build("loop:1")) <= 30_000
    expire(control, "loop:1")
    assert Lease(control, "loop:1", 30).acquire() > number


def test_a_holder_that_was_paused_past_its_expiry_neither_renews_nor_releases_its_successors_lease(control):
    paused, successor = Lease(control, "loop:1", 30), Lease(control, "loop:1", 30)
    paused.acquire()
    expire(control, "loop:1")
    assert successor.acquire()
    assert not paused.renew()
    assert not paused.release()
    assert Lease(control, "loop:1", 30).acquire() is None
    assert successor.renew()


def test_a_lease_that_is_kept_lasts_as_long_as_what_it_protects_and_no_longer(control):
    first, other = Lease(control, "a", 30), Lease(control, "a", 30)
    first.acquire()
    with first.keep_renewed(every_seconds=SOON):
        for _ in range(3):
            until_renewed(control, "a")
            assert other.acquire() is None
    assert RENEWAL not in [thread.name for thread in threading.enumerate()]
    expire(control, "a")
    assert other.acquire()


def test_a_lease_is_renewed_three_times_while_it_lasts(control, monkeypatch):
    """Two renewals may fail, and it is still held."""
    intervals = []

    @contextmanager
    def renew_every(renew, seconds):
        intervals.append(seconds)
        yield

    monkeypatch.setattr(leases, "_renew_in_background", renew_every)
    with Lease(control, "a", 30).keep_renewed(), LeaseGroup(control, {"b": 0}, 6).keep_renewed():
        assert intervals == [10, 2]


def test_what_is_to_last_as_long_as_a_lease_is_prolonged_with_it(control):
    lease, prolonged = Lease(control, "a", 30), threading.Event()
    lease.acquire()
    with lease.keep_renewed(prolonged.set, every_seconds=SOON):
        assert prolonged.wait(MAX_SECONDS)


def test_a_control_server_that_came_back_empty_gives_greater_numbers_than_those_it_has_forgotten(control):
    forgotten = Lease(control, "loop:1", 30).acquire()
    control.flushall()
    assert Lease(control, "loop:1", 30).acquire() > forgotten


def test_a_control_server_whose_clock_was_set_back_fences_nobody_out(control):
    """What was written came by a clock that was years ahead."""
    written = 3 * 10**15
    assert Lease(control, "loop:1", 30, at_least=written).acquire() == written + 1


def test_who_holds_a_lease_and_never_heard_of_it_is_given_its_number_again(control):
    lease = Lease(control, "loop:1", 30)
    number = lease.acquire()
    lease.fence = None  # the answer was lost
    control.pexpire("weir:lease:loop:1", 500)
    assert lease.acquire() == number
    assert control.pttl("weir:lease:loop:1") > 15_000
    assert Lease(control, "loop:1", 30).acquire() is None


def test_the_block_gives_the_lease_back_also_when_it_fails(control):
    with pytest.raises(RuntimeError, match="inside"), Lease(control, "loop:1", 30) as fence:
        number = fence
        with Lease(control, "loop:1", 30) as other:
            assert other is None
        raise RuntimeError("inside")
    assert Lease(control, "loop:1", 30).acquire() > number


def test_of_a_group_each_lease_is_its_own_and_one_that_another_holds_keeps_none_back(control):
    held = Lease(control, "b", 30)
    held.acquire()
    with LeaseGroup(control, {"a": 0, "b": 0, "c": 2**52}, 30) as fences:
        assert set(fences) == {"a", "c"} and fences["c"] > 2**52
        assert Lease(control, "a", 30).acquire() is None
    assert held.renew()
    assert Lease(control, "a", 30).acquire() > fences["a"]


def test_a_group_that_is_kept_lasts_and_one_of_it_that_was_lost_is_neither_renewed_nor_released(control):
    group, other = LeaseGroup(control, {"a": 0, "b": 0}, 30), Lease(control, "b", 30)
    group.acquire()
    control.delete("weir:lease:b")
    assert other.acquire()
    with group.keep_renewed(every_seconds=SOON):
        for _ in range(3):
            until_renewed(control, "a")
            assert Lease(control, "a", 30).acquire() is None
    group.release()
    assert not control.exists("weir:lease:a")
    assert other.renew()
