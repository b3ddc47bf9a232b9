"""Connections to a replicated control server: real servers, real sentinels."""

import asyncio

import pytest
import redis

from console.upkeep import doctor
from queues.control.acknowledged import AcknowledgedClient, NotReplicated
from queues.control.connection import connect, connected
from tests.sentinels import replicated
from tests.waiting import until
from workers.coordination.leases import Lease

pytestmark = [pytest.mark.slow, pytest.mark.faults]
FAST = {"socket_timeout": 2.0, "socket_connect_timeout": 1.0, "retry": None}


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
        assert until(lambda: control.get("weir:before"), 30) == b"1"
        assert until(lambda: control.incr("weir:counter"), 30) == 3


def test_a_listener_follows_too(plant):
    async def told() -> bytes:
        async with connected(plant.url, socket_connect_timeout=1.0) as client:
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

    assert until(again, 30) == b"yes"


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
    until(lambda: len(list(doctor.fail_over())) == 2, 20)
    replica, sentinel = doctor.fail_over()
    assert (replica.severity, sentinel.severity) == ("warning", "warning")
    assert str(plant.sentinels[2].port) in sentinel.text
    second.kill()
    until(lambda: next(doctor.fail_over()).severity == "error", 20)


def test_a_stale_primary_gives_no_lease_and_a_lease_outlives_its_primary(plant):
    """Split brain: a frozen primary comes back with its clients still connected, and grants nothing."""
    with connect(plant.url, **FAST) as before, connect(plant.url, **FAST) as after:
        lease = Lease(before, "loop:1", 60.0)
        assert lease.acquire() == 1
        stale = plant.primary()
        stale.freeze()
        until(lambda: plant.primary() is not stale, 30)
        until(lambda: after.set("weir:tried", "1"), 30)  # a replica follows the new primary, too
        assert Lease(after, "loop:1", 60.0).acquire() is None  # which knows the holder
        stale.thaw()
        with connected_before(stale) as astray, pytest.raises(redis.RedisError):
            Lease(astray, "loop:2", 60.0).acquire()
        assert until(lease.renew, 30)  # it has found the new primary
        plant.until_whole()


def connected_before(server):
    """A client that asks no sentinel: it speaks to this server, whatever became of it."""
    return AcknowledgedClient(port=server.config.port, socket_timeout=2.0, retry=None)
