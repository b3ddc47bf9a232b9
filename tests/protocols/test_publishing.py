"""A producer's client: flushes over three containers, answers that are lost, nodes that are full or killed,
pauses of the queue, a control server that cuts it off. What was acknowledged is stored, under one block id.
"""

from collections.abc import Sequence

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common.errors import NoContainerAvailable, NodeUnavailable, QueuePaused
from queues import keys, pausing
from queues.events.block import EncodedBlock, decode
from queues.publishing.client import REFRESH_SECONDS, Client
from queues.segments.segment import Segment
from queues.topology import Topology
from tests.protocols.exploring import DEPTHS, LONG, age_keys, explore
from tests.queues.samples import batch_of
from tests.servers import Server

NAMES = ("n1", "n2", "n3")
NODE = st.sampled_from(NAMES)
QUEUE = "alert"
PAUSE = keys.PAUSE.build(QUEUE, pausing.INTAKE)


class Unheard(Segment):
    """Stores a flush, and its answer gets lost."""

    def publish(self, blocks: Sequence[EncodedBlock]) -> None:
        super().publish(blocks)
        raise NodeUnavailable("nothing heard")


class Publisher(Client):
    """A client that some nodes' answers do not reach."""

    unheard: frozenset[str] = frozenset()

    def get_segment(self, queue: str, node: str) -> Segment:
        found = super().get_segment(queue, node)
        return Unheard(found.node, queue) if node in self.unheard else found


class Publishing(RuleBasedStateMachine):
    """One queue on three nodes, one client, and time that is the client's and the model's alone."""

    def __init__(self, server: Server, nodes: dict[str, Server], topology: Topology, most_kills: int) -> None:
        super().__init__()
        self.nodes, self.kills_left = nodes, most_kills
        self.control = server.client()
        for each in (self.control, *(node.client() for node in nodes.values())):
            each.flushall()
        for node in nodes.values():
            node.keeper.config_set("maxmemory", node.config.maxmemory_bytes)
        self.control.set(keys.TOPOLOGY, topology.to_json())
        self.now = 1_000.0
        self.client = Publisher(
            server.url, "test", clock=lambda: self.now, monotonic=lambda: self.now, timeout_seconds=2.0
        )
        self.acknowledged: set[str] = set()
        self.tried = 0
        self.paused_until: float | None = None
        self.changed_at = -REFRESH_SECONDS  # when a pause was last begun or ended

    def teardown(self) -> None:
        self.client.close()
        for node in self.nodes.values():
            node.keeper.config_set("maxmemory", node.config.maxmemory_bytes)

    def stored(self) -> dict[str, list[tuple[str, str]]]:
        """Event id → (block id, node) of each copy."""
        found: dict[str, list[tuple[str, str]]] = {}
        for name in NAMES:
            for _, block_id, data, _ in Segment(self.nodes[name].keeper, QUEUE).read("0-0", "+"):
                for event in decode(block_id, data).get_event_ids().to_pylist():
                    found.setdefault(event, []).append((block_id, name))
        return found

    def is_paused(self) -> bool:
        return self.paused_until is not None and self.now < self.paused_until

    @rule(events=st.integers(1, 1_100))
    def events_are_published(self, events: int) -> None:
        names = [f"e{row}" for row in range(self.tried, self.tried + events)]
        before = self.stored()
        is_known = self.now - self.changed_at >= REFRESH_SECONDS  # within a second, both answers are right
        try:
            published = self.client.publish(QUEUE, batch_of(events, self.tried))
        except QueuePaused:
            assert self.is_paused() or not is_known
            assert self.stored() == before, "what is refused is not stored"
            return
        except NoContainerAvailable as error:
            self.tried += events
            stored = self.stored()
            there = [name for name in names if name in stored]
            assert len(there) >= error.stored.events == sum(error.stored.by_container.values())
        else:
            self.tried += events
            assert published.events == events == sum(published.by_container.values())
            self.acknowledged |= set(names)
        assert not (self.is_paused() and is_known), "nothing is acknowledged while intake is paused"

    @rule(nodes=st.frozensets(NODE, max_size=2))
    def answers_of_nodes_get_lost(self, nodes: frozenset[str]) -> None:
        self.client.unheard = nodes

    @rule(node=NODE, is_full=st.booleans())
    def a_node_is_full_or_has_room_again(self, node: str, is_full: bool) -> None:
        server = self.nodes[node]
        server.keeper.config_set("maxmemory", 1 if is_full else server.config.maxmemory_bytes)

    @rule(seconds=st.integers(2, 30))
    def intake_is_paused(self, seconds: int) -> None:
        until = pausing.Pause(self.now + seconds, "A test.", "nobody")
        pausing.pause(self.control, QUEUE, pausing.INTAKE, until, self.now)
        self.paused_until, self.changed_at = until.until, self.now

    @rule()
    def intake_is_resumed(self) -> None:
        pausing.resume(self.control, QUEUE, pausing.INTAKE)
        self.paused_until, self.changed_at = None, self.now

    @rule(seconds=st.integers(1, 8))
    def time_passes(self, seconds: int) -> None:
        age_keys(self.control, [PAUSE], seconds)
        if self.is_paused() and self.now + seconds >= (self.paused_until or 0.0):
            # It ends by itself, and is noticed as soon as any change.
            self.changed_at = self.paused_until or 0.0
        self.now += seconds

    @rule()
    def the_connection_to_the_control_server_is_cut(self) -> None:
        self.client._control.connection_pool.disconnect()

    @precondition(lambda self: self.kills_left > 0)
    @rule(node=NODE)
    def a_node_is_killed_and_started_again(self, node: str) -> None:
        self.kills_left -= 1
        self.nodes[node].kill()
        self.nodes[node].start()

    @invariant()
    def what_was_acknowledged_is_stored(self) -> None:
        assert self.acknowledged <= self.stored().keys()

    @invariant()
    def copies_are_of_one_block_on_different_nodes(self) -> None:
        """So that whoever handles the second one knows it."""
        for copies in self.stored().values():
            assert len({block for block, _ in copies}) == 1
            assert len({node for _, node in copies}) == len(copies)

    @invariant()
    def every_node_counts_what_it_stored(self) -> None:
        stored = self.stored()
        counted = sum(Segment(node.keeper, QUEUE).get_counters()["inserted_events"] for node in self.nodes.values())
        assert counted == sum(len(copies) for copies in stored.values())


@pytest.mark.faults
@pytest.mark.parametrize("depth", DEPTHS)
def test_what_a_client_acknowledges_is_stored_whatever_gets_lost(control_server, control, nodes, plant_topology, depth):
    kills = 1 if depth == LONG else 0
    explore(lambda: Publishing(control_server, nodes, plant_topology, kills), depth)
