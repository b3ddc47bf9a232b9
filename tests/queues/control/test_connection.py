"""Connections to a replicated control server: real servers, real sentinels."""

import asyncio
import itertools
import threading
from contextlib import suppress

import pytest
import redis

from console.upkeep import doctor
from queues.control.connection import AcknowledgedClient, NoPrimary, NotReplicated, connect, open_connection
from tests.sentinels import replicated
from tests.waiting import until
from workers.coordination.leases import Lease

pytestmark = [pytest.mark.slow, pytest.mark.faults]
FAST = {"socket_timeout": 2.0, "socket_connect_timeout": 1.0, "retry": None}
FREEZES = 3


@pytest.fixture
def plant(tmp_path):
    with replicated(tmp_path) as plant:
        yield plant


def test_a_client_follows_the_primary_and_finds_what_was_answered(plant):
    with connect(plant.url, **FAST) as control:
        control.set("weir:before", "1")
        with control.pipeline() as pipe:
            pipe.incr("weir:counter")
            pipe.incr("weir:counter")
            assert pipe.execute() == [1, 2]
        plant.primary().kill()
        assert until(lambda: control.get("weir:before")) == b"1"
        # One that fails may have been done, as after a reply that was lost.
        assert until(lambda: control.incr("weir:counter")) >= 3


def test_a_listener_follows_too(plant):
    async def told() -> bytes:
        async with open_connection(plant.url, socket_connect_timeout=1.0) as client:
            await client.ping()
            return await client.get("weir:told")

    with connect(plant.url, **FAST) as control:
        control.set("weir:told", "yes")
    plant.primary().kill()

    def again() -> bytes | None:
        try:
            return asyncio.run(told())
        except redis.RedisError:
            return None

    assert until(again) == b"yes"


def test_a_write_that_no_replica_takes_fails_and_says_so(plant):
    with connect(plant.url, **FAST) as control, connect(plant.url, acknowledged=False, **FAST) as careless:
        control.ping()
        for server in plant.replicas():
            server.freeze()
        assert careless.set("weir:heartbeat", "1")
        with pytest.raises(NotReplicated, match="No replica"):
            control.set("weir:promise", "1")
        assert control.get("weir:heartbeat") == b"1"
        with pytest.raises(NotReplicated):
            Lease(control, "loop:1", 4.0).acquire()


def test_the_doctor_says_which_replicas_and_sentinels_are_missing(plant, settings):
    settings.REDIS_URL = plant.url
    assert list(doctor.fail_over()) == []
    plant.sentinels[2].close()
    first, second = plant.replicas()
    first.kill()
    until(lambda: len(list(doctor.fail_over())) == 2)
    replica, sentinel = doctor.fail_over()
    assert (replica.severity, sentinel.severity) == ("warning", "warning")
    assert str(plant.sentinels[2].port) in sentinel.text
    second.kill()
    until(lambda: next(doctor.fail_over()).severity == "error")


def test_the_doctor_finds_an_address_that_leaves_sentinels_out(plant, settings):
    settings.REDIS_URL = plant.url.replace(f",127.0.0.1:{plant.sentinels[2].port}", "")
    (found,) = doctor.fail_over()
    assert (found.severity, found.subject) == ("error", "REDIS_URL")
    assert "2 of 3 sentinels" in found.text


def test_a_stale_primary_gives_no_lease_and_a_lease_outlives_its_primary(plant):
    """Split brain: a frozen primary comes back with its clients still connected, and grants nothing."""
    with connect(plant.url, **FAST) as before, connect(plant.url, **FAST) as after:
        lease = Lease(before, "loop:1", 60.0)
        assert lease.acquire()
        stale = plant.primary()
        stale.freeze()
        until(lambda: plant.primary() is not stale)
        until(lambda: after.set("weir:tried", "1"))  # a replica follows the new primary, too
        assert Lease(after, "loop:1", 60.0).acquire() is None  # which knows the holder
        stale.thaw()
        with connected_before(stale) as astray, pytest.raises(redis.RedisError):
            Lease(astray, "loop:2", 60.0).acquire()
        assert until(lease.renew)  # it has found the new primary
        plant.until_whole()


def connected_before(server):
    """A client that asks no sentinel: it speaks to this server, whatever became of it."""
    return AcknowledgedClient(port=server.config.port, socket_timeout=2.0, retry=None)


def test_what_a_thawed_primary_takes_while_another_is_made_is_not_acknowledged(plant):
    """It has clients that waited, and a replica that nobody has turned away yet: both are of the past."""
    acknowledged: list[int] = []
    with connect(plant.url, **FAST) as control:
        for number in range(FREEZES):
            stale = plant.primary()
            with Writers(plant.url, number, acknowledged):
                stale.freeze()
                until(lambda stale=stale: plant.primary() is not stale)
                stale.thaw()
                last = len(acknowledged)
                until(lambda last=last: len(acknowledged) > last)
            plant.until_whole(60)
        lasting = {int(each) for each in until(lambda: control.lrange("written", 0, -1))}
    assert set(acknowledged) <= lasting


class Writers:
    """Threads that write what nobody else does; each second one connects anew for every write."""

    def __init__(self, url: str, turn: int, acknowledged: list[int]) -> None:
        self._url, self._acknowledged = url, acknowledged
        self._numbers = itertools.count(turn * 1_000_000)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(place % 2 == 0,)) for place in range(4)]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, anew: bool) -> None:
        with connect(self._url, **FAST) as control:
            while not self._stop.wait(0.02):
                number = next(self._numbers)
                if anew:
                    control.connection_pool.disconnect()
                with suppress(redis.RedisError):
                    control.rpush("written", number)
                    self._acknowledged.append(number)


def test_a_write_that_most_sentinels_do_not_vouch_for_fails_and_says_so(plant):
    with connect(plant.url, **FAST) as control:
        plant.sentinels[2].close()
        assert control.set("weir:promise", "1")
        plant.sentinels[1].close()
        with pytest.raises(NoPrimary, match="1 of 3 sentinels"):
            control.set("weir:promise", "2")
        assert control.get("weir:promise") == b"2"  # and may have been done, as after a reply that was lost
