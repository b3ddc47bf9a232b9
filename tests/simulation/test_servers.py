"""The simulated server replies to Weir's scripts as a real one does."""

import json
import time
from collections.abc import Callable
from itertools import pairwise

import pytest
import redis
from fakeredis._clients._sync import FakeRedisConnection

from bench.simulation import context
from bench.simulation.scheduler import Scheduler
from bench.simulation.servers import Replica, VirtualServer
from queues.lua.script import load_script
from queues.segments.segment import Segment
from tests.queues.samples import age_claims, blocks_of
from workers.coordination.leases import Lease, LeaseGroup

NOW = 1_790_000_000.0
# Of a plan that empties a node, of workers, of retry plans, and of everything that has one holder.
SCRIPTS = (
    *("lease/acquire", "lease/renew", "lease/release", "plant/move_messages"),
    *(
        f"segment/{name}"
        for name in ("measure", "reclaim", "acknowledge", "depart", "receive", "confirm", "stay", "sweep")
    ),
)


@pytest.fixture(autouse=True)
def _virtual_time():
    context.set_scheduler(Scheduler(0, NOW))
    yield
    context.set_scheduler(None)


class DirectConnection(FakeRedisConnection):
    """A connection without a network."""

    def __init__(self, **options):
        self._virtual = options.pop("virtual")
        super().__init__(server=self._virtual.store, **options)

    def _connect(self):
        return self._virtual.open_session(3)


def client_of(server: VirtualServer) -> redis.Redis:
    pool = redis.ConnectionPool(connection_class=DirectConnection, virtual=server, protocol=3)
    return redis.Redis(connection_pool=pool)


def take_leases(client: redis.Redis) -> list[object]:
    first, second = Lease(client, "plan:1", 30, at_least=7), Lease(client, "plan:1", 30)
    group = LeaseGroup(client, {"loop:1": 0, "plan:1": 0}, 30)
    numbers = [first.acquire(), second.acquire(), first.acquire()]
    taken = group.acquire()
    seen = [numbers[0] == numbers[2], numbers[0] > 7, numbers[1], sorted(taken), group.renew(), first.renew()]
    seen += [first.release(), first.release(), second.acquire() > numbers[0], group.release()]
    return [
        *seen,
        LeaseGroup(client, {"loop:1": taken["loop:1"] + 10**9}, 30).acquire()["loop:1"] > taken["loop:1"] + 10**9,
    ]


def move_blocks(client: redis.Redis) -> list[object]:
    """All steps of a transfer, each of them twice, and of a worker whose claims are taken over."""
    source, target = Segment(client, "alert"), Segment(client, "process")
    blocks = blocks_of(12, 2)
    source.publish(blocks)
    claimed = source.claim("w1", 4, 60.0)
    seen: list[object] = [
        len(claimed),
        source.acknowledge([claimed[0].entry_id]),
        source.acknowledge([claimed[0].entry_id]),
    ]
    age_claims(source, "w1", claimed[1:], 100.0)
    taken = source.claim("w2", 2, 60.0)
    seen += [[block.tries for block in taken], [block.data == blocks[1].data for block in taken]]
    departing = source.depart({"n2": 1, "n3": 1}, 10, 1_000_000)
    again = source.depart({"n2": 1, "n3": 1}, 10, 1_000_000)
    seen += [
        departing == again,
        [(block.target, block.events, block.data == b"" or len(block.data)) for block in departing],
    ]
    seen += [target.receive("n1", block) for block in (*departing[:2], departing[0])]
    seen += [sorted(source.list_marked_nodes()), source.confirm([block.entry_id for block in departing[:2]])]
    seen += [source.confirm([departing[0].entry_id]), source.stay(["n2", "n3"]), source.list_marked_nodes()]
    seen += [len(source.depart({"n2": 0}, 10, 1_000_000)), source.sweep(0.0), len(target.claim("w3", 100, 60.0))]
    return [*seen, *map(describe, (source, target))]


def describe(segment: Segment) -> dict[str, object]:
    gauge = segment.measure()
    return {name: value for name, value in gauge.items() if name != "oldest_seconds"}


def move_messages(client: redis.Redis) -> list[object]:
    messages = [json.dumps({"properties": {"delivery_info": {"routing_key": f"q{number % 2}"}}}) for number in range(5)]
    client.lpush("staged", *messages)
    script = load_script("plant/move_messages")
    counts = [client.eval(script, 1, "staged", 3, "app."), client.eval(script, 1, "staged", 3, "app.")]
    return [counts, client.lrange("app.q0", 0, -1), client.lrange("app.q1", 0, -1)]


@pytest.mark.parametrize("work", [take_leases, move_blocks, move_messages])
def test_the_simulated_server_replies_as_a_real_one(work: Callable[[redis.Redis], list[object]], node: redis.Redis):
    assert work(client_of(VirtualServer("s1", "s1", 6379))) == work(node)


def test_the_comparison_covers_every_script_that_the_simulation_runs():
    server = VirtualServer("s1", "s1", 6379)
    for work in (take_leases, move_blocks, move_messages):
        work(client_of(server))
    assert set(server.functions) == {load_script(name).encode() for name in SCRIPTS}


def test_a_lease_expires_by_the_servers_clock(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: context.scheduler().now)
    server = VirtualServer("s1", "s1", 6379)
    script, words = load_script("lease/acquire"), ("4000", "token", "0")
    numbers = []
    for seconds in (0.0, 3.9, 4.2):
        context.scheduler().now = NOW + seconds
        numbers.append(server.ask("EVAL", script, "2", "lease", "fence", *words[:1], f"{words[1]}{seconds}", words[2]))
    assert [bool(number) for [number] in numbers] == [True, False, True]
    assert numbers[0] == [round(NOW * 1e6)]
    assert numbers[2] > numbers[0]


def test_a_replica_has_what_the_primary_had_when_it_copied_last():
    primary, other = VirtualServer("s1", "s1", 6379), VirtualServer("s2", "s2", 6379)
    replica = Replica(other, primary)
    primary.replicas.append(replica)
    primary.ask("SET", "a", "1")
    assert primary.ask("WAIT", "1", "0") == 0
    replica.copy_changes()
    assert primary.ask("WAIT", "1", "0") == 1
    primary.ask("DEL", "a")
    primary.ask("RPUSH", "b", "2")
    other.primary = None
    assert [other.ask("GET", "a"), other.ask("LLEN", "b")] == [b"1", 0]


def test_a_replica_accepts_no_writes():
    primary, other = VirtualServer("s1", "s1", 6379), VirtualServer("s2", "s2", 6379)
    Replica(other, primary)
    assert isinstance(other.ask("SET", "a", "1"), redis.ReadOnlyError)


def test_what_is_copied_is_independent_of_the_original():
    primary, other = VirtualServer("s1", "s1", 6379), VirtualServer("s2", "s2", 6379)
    primary.ask("HSET", "a", "x", "1")
    Replica(other, primary)
    primary.ask("HSET", "a", "x", "2")
    other.primary = None
    assert [server.ask("HGET", "a", "x") for server in (primary, other)] == [b"2", b"1"]
    assert all(first is not second for first, second in pairwise([primary.database, other.database]))
