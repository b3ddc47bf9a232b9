"""The topology's stored form: read back as written, refused by field."""

import json
from dataclasses import replace

import pytest

from common.errors import BadInput, BadTopology, UnknownQueue
from queues.topology import Capacity, KnownTopology, NodeSpec, QueueSpec, Topology

TOPOLOGY = Topology(
    revision=7,
    nodes={
        "n1": NodeSpec("n1", "redis://127.0.0.1:1/0"),
        "n2": NodeSpec("n2", "redis://127.0.0.1:2/0", Capacity(10.0, 5), 0.5, 0.6, True),
    },
    queues={"alert": QueueSpec("alert", "jobs", {"n1": 400, "n2": 600}, handler_options={"url": "x"})},
)


def changed(path: str, value: object) -> str:
    """The stored form with one value replaced, or removed when it is `...`."""
    document = json.loads(TOPOLOGY.to_json())
    *way, last = path.split(".")
    place = document
    for key in way:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(document)


def test_a_topology_is_read_back_as_it_was_written():
    assert Topology.from_json(TOPOLOGY.to_json()) == TOPOLOGY


def test_the_requirements_of_a_queue_are_stored_only_if_there_are_any():
    assert "requirements" not in TOPOLOGY.to_json(), "an older version rejects unknown keys"
    alert = replace(TOPOLOGY.queue("alert"), requirements=("gpu", "zone-a"))
    topology = replace(TOPOLOGY, queues={"alert": alert})
    assert Topology.from_json(topology.to_json()) == topology


def test_the_durability_of_a_queue_is_stored_only_if_it_is_not_memory():
    assert "durability" not in TOPOLOGY.to_json(), "an older version rejects unknown keys"
    alert = replace(TOPOLOGY.queue("alert"), durability="disk")
    topology = replace(TOPOLOGY, queues={"alert": alert})
    assert Topology.from_json(topology.to_json()) == topology


def test_queues_and_nodes_are_found_by_name_and_unknown_ones_say_what_is_known():
    assert TOPOLOGY.queue("alert").points["n2"] == 600
    assert TOPOLOGY.on_node("n1") == ["alert"]
    with pytest.raises(UnknownQueue, match="alert"):
        TOPOLOGY.queue("orders")
    with pytest.raises(BadInput, match="n1, n2"):
        TOPOLOGY.get_node("n9")


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("revision", "7", "revision"),
        ("nodes", ..., "weir:topology.nodes"),
        ("nodes", [], "nodes"),
        ("queues", None, "queues"),
        pytest.param("nodes.n1.busy", 10**400, "nodes.n1.busy", id="beyond all numbers"),
        ("nodes.n1.url", "localhost", "nodes.n1.url"),
        ("nodes.n1.colour", "red", "nodes.n1.colour"),
        ("nodes.n1.busy", 0.95, "nodes.n1.toobusy"),
        ("nodes.n1.capacity.memory_bytes", 0, "nodes.n1.capacity.memory_bytes"),
        ("nodes.n1.capacity.events_per_second", "fast", "nodes.n1.capacity.events_per_second"),
        ("nodes.N1", {}, "nodes.N1"),
        ("queues.alert.kind", "batch", "queues.alert.kind"),
        ("queues.alert.points.n1", 401, "queues.alert.points"),
        ("queues.alert.points", {"n1": 400, "n9": 600}, "queues.alert.points.n9"),
        ("queues.alert.tries", 0, "queues.alert.tries"),
        ("queues.alert.tries", ..., "queues.alert.tries"),
        ("queues.alert.handler_timeout_seconds", -1, "queues.alert.handler_timeout_seconds"),
        ("queues.alert.handler_options", [], "queues.alert.handler_options"),
        ("queues.alert.requirements", "gpu", "queues.alert.requirements"),
        ("queues.alert.requirements", ["GPU!"], "queues.alert.requirements"),
        ("queues.alert.durability", "tape", "queues.alert.durability"),
    ],
)
def test_a_wrong_topology_is_refused_by_field(path, value, field):
    with pytest.raises(BadTopology) as caught:
        Topology.from_json(changed(path, value))
    assert caught.value.field == field


@pytest.mark.parametrize("text", [None, b"", b"{", b"[]"])
def test_a_missing_or_broken_topology_says_so(text):
    with pytest.raises(BadTopology, match="weir:topology"):
        Topology.from_json(text)


@pytest.mark.parametrize("text", [None, b"{", b'{"revision": 9, "nodes": {}, "queues": {}, "newer": 1}'])
def test_who_knows_a_topology_goes_on_by_it_where_the_next_can_not_be_read(text):
    known = KnownTopology()
    with pytest.raises(BadTopology):
        known.read(text)
    assert known.read(TOPOLOGY.to_json()) == TOPOLOGY
    assert known.read(text) == TOPOLOGY == known.latest
    newer = replace(TOPOLOGY, revision=TOPOLOGY.revision + 1)
    assert known.read(newer.to_json()) == newer


def test_a_node_that_is_named_twice_is_refused_by_name():
    twice = TOPOLOGY.to_json().replace('"nodes": {', '"nodes": {"n7": {}, "n7": {}, ', 1)
    with pytest.raises(BadTopology, match="n7: is a duplicate"):
        Topology.from_json(twice)
