"""From the database to `weir:topology`, whole or not at all."""

import pytest

from common.errors import BadInput, BadTopology, NodeUnavailable, UnknownQueue
from queues import keys, projection
from queues.models import Container, Node, Queue, TopologyRevision
from queues.topology import Topology
from tests.queues.points import set_points
from tests.races import PausedControl, another_thread, until_another_waits
from tests.waiting import MAX_SECONDS

pytestmark = pytest.mark.django_db


@pytest.fixture
def three_nodes():
    for number in (1, 2, 3):
        Node.objects.create(name=f"n{number}", url=f"redis://127.0.0.1:{number}/0")


def test_a_new_queue_gets_its_thousand_points_and_is_projected(control, three_nodes):
    topology = projection.create_queue(control, "orders", "jobs", handler="sql", tries=3)
    assert topology.queue("orders").points == {"n1": 334, "n2": 333, "n3": 333}
    assert Topology.from_json(control.get(keys.TOPOLOGY)) == topology
    assert topology.revision == TopologyRevision.objects.get().number == 1


def test_a_drained_node_gets_no_share_of_a_new_queue(control, three_nodes):
    Node.objects.filter(name="n2").update(drained=True)
    assert set(projection.create_queue(control, "orders", "jobs").queue("orders").points) == {"n1", "n3"}


def test_points_are_set_as_a_whole_and_each_change_has_its_revision(control, three_nodes):
    projection.create_queue(control, "orders", "jobs")
    topology = set_points(control, "orders", {"n1": 100, "n3": 900})
    assert topology.queue("orders").live_points == {"n1": 100, "n3": 900}
    assert topology.revision == 2


def test_a_node_that_loses_its_points_keeps_a_container_that_drains(control, three_nodes):
    projection.create_queue(control, "orders", "jobs")
    topology = set_points(control, "orders", {"n1": 100, "n3": 900})
    assert topology.queue("orders").points["n2"] == 0
    assert Container.objects.get(node__name="n2").draining_since is not None
    assert topology.on_node("n2") == ["orders"]
    assert not topology.has_points("n2")


def test_an_empty_draining_container_goes_and_one_with_points_stays(control, three_nodes):
    projection.create_queue(control, "orders", "jobs")
    set_points(control, "orders", {"n1": 100, "n3": 900})
    assert projection.retire_containers(control, [("orders", "n1"), ("orders", "n2")]) == 1
    assert Topology.from_json(control.get(keys.TOPOLOGY)).queue("orders").points == {"n1": 100, "n3": 900}


@pytest.mark.django_db(transaction=True)
def test_a_container_that_gets_points_while_it_is_retired_keeps_them(control, three_nodes):
    projection.create_queue(control, "orders", "jobs")
    before, after = {"n1": 100, "n3": 900}, {"n1": 100, "n2": 200, "n3": 700}
    set_points(control, "orders", before)
    with another_thread() as call:
        retired = []

        def meanwhile():
            retired.append(call(projection.retire_containers, control, [("orders", "n2")]))
            until_another_waits()

        paused = PausedControl(control, meanwhile)
        projection.move_points(paused, {"orders": before}, {"orders": after})
        assert retired[0].result(MAX_SECONDS) == 0
    assert projection.read_database().queue("orders").points == after
    assert Topology.from_json(control.get(keys.TOPOLOGY)).queue("orders").points == after


def test_what_nobody_could_read_is_not_projected(control, three_nodes):
    projection.create_queue(control, "orders", "jobs")
    stored = control.get(keys.TOPOLOGY)
    Container.objects.filter(node__name="n2").delete()
    with pytest.raises(BadTopology, match="must sum to 1000, not 667"):
        projection.project(control)
    assert control.get(keys.TOPOLOGY) == stored
    assert TopologyRevision.objects.get().number == 1


def test_events_found_outside_of_a_container_get_one_that_drains(control, three_nodes):
    projection.create_queue(control, "orders", "jobs")
    set_points(control, "orders", {"n1": 100, "n3": 900})
    projection.retire_containers(control, [("orders", "n2")])
    strays = [("orders", "n2"), ("orders", "n1"), ("unknown", "n1"), ("orders", "n9")]
    assert projection.keep_draining(control, strays) == 1
    assert Topology.from_json(control.get(keys.TOPOLOGY)).queue("orders").points == {"n1": 100, "n2": 0, "n3": 900}


def test_points_move_only_from_what_they_were_computed_from(control, three_nodes):
    before = projection.create_queue(control, "orders", "jobs").queue("orders").live_points
    after = {"n1": 667, "n2": 333}
    topology = projection.move_points(control, {"orders": before}, {"orders": after})
    assert topology.queue("orders").live_points == after
    with pytest.raises(projection.PointsDrifted, match="have changed in the meantime"):
        projection.move_points(control, {"orders": before}, {"orders": {"n2": 500, "n3": 500}})
    assert projection.read_database().queue("orders").live_points == after


def test_moves_of_several_queues_happen_together_or_not_at_all(control, three_nodes):
    before = {name: projection.create_queue(control, name, "jobs").queue(name).live_points for name in ("a", "b")}
    stored = control.get(keys.TOPOLOGY)
    with pytest.raises(BadInput, match="minimum_containers"):
        projection.move_points(control, before, {"a": {"n1": 500, "n2": 500}, "b": {"n1": 1000}})
    assert projection.read_database().queue("a").live_points == before["a"]
    assert control.get(keys.TOPOLOGY) == stored


def test_thresholds_in_force_replace_the_nodes_own(control, three_nodes):
    topology = projection.project(control, {"n1": {"busy": 0.2, "toobusy": 0.3}})
    assert (topology.get_node("n1").busy, topology.get_node("n1").toobusy, topology.get_node("n2").busy) == (
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
def test_a_queue_that_cannot_be_is_refused_by_field_and_changes_nothing(control, three_nodes, arguments, field):
    projection.create_queue(control, "taken", "jobs")
    before = control.get(keys.TOPOLOGY)
    with pytest.raises(BadInput) as caught:
        projection.create_queue(control, **arguments)
    assert caught.value.field == field
    assert list(Queue.objects.values_list("name", flat=True)) == ["taken"]
    assert control.get(keys.TOPOLOGY) == before
    assert TopologyRevision.objects.get().number == 1


def test_points_of_an_unknown_queue_are_refused(control, three_nodes):
    with pytest.raises(UnknownQueue):
        set_points(control, "orders", {"n1": 1000})


def test_nothing_changes_in_the_database_when_the_control_server_is_away(control, control_server, three_nodes):
    control_server.kill()
    with pytest.raises(NodeUnavailable, match="Nothing was changed"):
        projection.create_queue(control, "orders", "jobs")
    assert not Queue.objects.exists()
    assert not TopologyRevision.objects.exists()


def test_a_projection_that_was_never_committed_is_put_right(control, three_nodes):
    topology = projection.create_queue(control, "orders", "jobs")
    stored = control.get(keys.TOPOLOGY)
    assert not projection.reconcile(control)
    assert control.get(keys.TOPOLOGY) == stored
    control.set(keys.TOPOLOGY, topology.to_json().replace("334", "335"))
    assert projection.reconcile(control)
    assert Topology.from_json(control.get(keys.TOPOLOGY)) == projection.read_database()
    control.delete(keys.TOPOLOGY)
    assert projection.reconcile(control)
    assert Topology.from_json(control.get(keys.TOPOLOGY)).queue("orders").points == topology.queue("orders").points


def test_of_a_queue_that_lost_containers_all_else_can_be_changed(control, three_nodes):
    before = projection.create_queue(control, "orders", "jobs").queue("orders").live_points
    lost = {"orders": {"n1": 1000}}
    projection.move_points(control, {"orders": before}, lost, may_be_short=True)
    assert projection.change_queue(control, "orders", {"priority": 1}).queue("orders").priority == 1
    with pytest.raises(BadInput, match="must be 1 to 1"):
        projection.change_queue(control, "orders", {"minimum_containers": 3})
