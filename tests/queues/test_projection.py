"""From the database to `weir:topology`, whole or not at all."""

import pytest

from queues import projection
from queues.errors import BadInput, NodeUnavailable, UnknownQueue
from queues.models import Node, Queue, TopologyRevision
from queues.topology import KEY, Topology

pytestmark = pytest.mark.django_db


@pytest.fixture
def three_nodes():
    for number in (1, 2, 3):
        Node.objects.create(name=f"n{number}", url=f"redis://127.0.0.1:{number}/0")


def test_a_new_queue_gets_its_thousand_points_and_is_projected(control, three_nodes):
    topology = projection.create_queue(control, "orders", "jobs", handler="sql", tries=3)
    assert topology.queue("orders").points == {"n1": 334, "n2": 333, "n3": 333}
    assert Topology.from_json(control.get(KEY)) == topology
    assert topology.revision == TopologyRevision.objects.get().number == 1


def test_a_drained_node_gets_no_share_of_a_new_queue(control, three_nodes):
    Node.objects.filter(name="n2").update(drained=True)
    assert set(projection.create_queue(control, "orders", "jobs").queue("orders").points) == {"n1", "n3"}


def test_points_are_set_as_a_whole_and_each_change_has_its_revision(control, three_nodes):
    projection.create_queue(control, "orders", "jobs")
    topology = projection.set_points(control, "orders", {"n1": 100, "n3": 900})
    assert topology.queue("orders").points == {"n1": 100, "n3": 900}
    assert topology.revision == 2


def test_thresholds_in_force_replace_the_nodes_own(control, three_nodes):
    topology = projection.project(control, {"n1": {"busy": 0.2, "toobusy": 0.3}})
    assert (topology.node("n1").busy, topology.node("n1").toobusy, topology.node("n2").busy) == (
        0.2,
        0.3,
        0.7,
    )


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"name": "Orders", "kind": "jobs"}, "name"),
        ({"name": "orders", "kind": "batch"}, "kind"),
        ({"name": "taken", "kind": "jobs"}, "name"),
        ({"name": "orders", "kind": "jobs", "priority": 10}, "priority"),
        ({"name": "orders", "kind": "jobs", "colour": 1}, "colour"),
        ({"name": "orders", "kind": "jobs", "points": {"n1": 999}}, "points"),
        ({"name": "orders", "kind": "jobs", "points": {"n1": 1000}}, "points"),
        ({"name": "orders", "kind": "jobs", "points": {"n1": 500, "n9": 500}}, "points.n9"),
    ],
)
def test_a_queue_that_cannot_be_is_refused_by_field_and_changes_nothing(
    control, three_nodes, arguments, field
):
    projection.create_queue(control, "taken", "jobs")
    before = control.get(KEY)
    with pytest.raises(BadInput) as caught:
        projection.create_queue(control, **arguments)
    assert caught.value.field == field
    assert list(Queue.objects.values_list("name", flat=True)) == ["taken"]
    assert control.get(KEY) == before
    assert TopologyRevision.objects.get().number == 1


def test_points_of_an_unknown_queue_are_refused(control, three_nodes):
    with pytest.raises(UnknownQueue):
        projection.set_points(control, "orders", {"n1": 1000})


def test_nothing_changes_in_the_database_when_the_control_server_is_away(
    control, control_server, three_nodes
):
    control_server.kill()
    with pytest.raises(NodeUnavailable, match="nothing was changed"):
        projection.create_queue(control, "orders", "jobs")
    assert not Queue.objects.exists()
    assert not TopologyRevision.objects.exists()
