"""Plans on pages: proposed with a click, approved as shown, refused with the reason, all of it audited."""

import time

import pytest
from django.test import Client
from django.utils import timezone

from common.stored_document import replace_fields
from console.actions.proposals.plans import count_moved_points
from console.models import AuditEntry
from console.pages.plant.plan_view import build_dumbbells, describe_plan
from queues import keys
from queues.models import Node
from queues.topology import Topology
from tests.console.page_form import audited, fetch, form_of
from tests.queues.points import set_points
from tests.workers.placement.plan_plant import Plant, loaded
from workers.documents.plans import NodeForecast, PlanDocument, PlanMove
from workers.documents.snapshot import NOTHING_SEEN
from workers.models import Plan
from workers.placement import execution, recovery
from workers.steering import plant_settings

pytestmark = pytest.mark.django_db
REASON = {"reason": "the export runs until 16:00"}
EVEN = {"n1": 334, "n2": 333, "n3": 333}


@pytest.fixture
def plant(control, nodes):
    made = Plant(control, nodes)
    yield made
    made.close()


@pytest.fixture
def calm(plant):
    return stored(plant, plant.pass_seconds(3))


def stored(plant, snapshot):
    """The snapshot as the newest on the control server, observed just now."""
    seen = replace_fields(snapshot, at=time.time())
    plant.control.set(keys.SNAPSHOT, seen.to_json())
    return seen


def busy(plant):
    """n1 is over BUSY by what alert causes there."""
    set_points(plant.control, "alert", {"n1": 700, "n2": 200, "n3": 100})
    loads = {
        "alert": {"n1": 0.7, "n2": 0.2, "n3": 0.1},
        "process": {"n1": 0.1, "n2": 0.1, "n3": 0.1},
        "telemetry": {"n1": 0.0, "n2": 0.0, "n3": 0.0},
    }
    return stored(plant, loaded(plant.pass_seconds(3), loads))


def by_hand(browser, n1=200, n2=467, n3=333):
    return fetch(
        browser, "/queues/alert/points", {"points-n1": str(n1), "points-n2": str(n2), "points-n3": str(n3), **REASON}
    )


def test_points_by_hand_open_a_plan_and_move_nothing(operator, plant, calm):
    answer = by_hand(operator)
    plan = Plan.objects.get()
    assert answer.json()["go"] == f"/plans/{plan.pk}/"
    assert plant.points() == EVEN
    shown = operator.get(answer.json()["go"]).context["plan"]
    assert shown.headline == "Change points of alert: move 134 points"
    assert shown.changes == {"alert": {"n1": -134, "n2": 134}}
    assert audited() == [("operator", "plan.propose", f"plan {plan.pk}")]


def test_a_division_that_was_made_from_other_points_is_refused(operator, plant, calm):
    page = form_of(operator.get("/queues/alert/"), "/queues/alert/points")
    wanted = {**page, "points-n1": "200", "points-n2": "467", **REASON}
    set_points(plant.control, "alert", {"n1": 300, "n2": 367, "n3": 333})
    answer = fetch(operator, "/queues/alert/points", wanted)
    assert answer.status_code == 422 and list(answer.json()["errors"]) == ["digest"]
    assert "The point distribution of alert was changed in the meantime" in answer.content.decode()
    assert not Plan.objects.exists()
    page = form_of(operator.get("/queues/alert/"), "/queues/alert/points")
    fetch(operator, "/queues/alert/points", {**page, "points-n1": "200", "points-n2": "467", **REASON})
    assert count_moved_points(Plan.objects.get()) == 100


@pytest.mark.parametrize(
    ("points", "field"),
    [
        ({"n1": 200, "n2": 467, "n3": 334}, "points"),
        ({"n1": 1000, "n2": 0, "n3": 0}, "moves"),
        ({"n1": 334, "n2": 333, "n3": 333}, "points"),
        ({"n1": -1, "n2": 668, "n3": 333}, "points-n1"),
        ({"n1": 0, "n2": 500, "n9": 500}, "points-n9"),
    ],
)
def test_a_division_that_cannot_be_is_refused_at_its_field(points, field, operator, plant, calm):
    posted = {f"points-{node}": str(value) for node, value in points.items()}
    answer = fetch(operator, "/queues/alert/points", {**posted, **REASON})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert not Plan.objects.exists() and audited() == []


def test_rebalance_now_opens_a_plan_that_leaves_no_node_busy(operator, plant):
    busy(plant)
    answer = fetch(operator, "/plans/rebalance", {"goal": "below-busy"})
    plan = operator.get(answer.json()["go"]).context["plan"]
    assert plan.headline == f"Move {plan.points} points so that no node is busy"
    assert [row.name for row in plan.dumbbells] == ["n1", "n2", "n3"]
    assert (plan.dumbbells[0].state, plan.dumbbells[0].state_after) == ("BUSY", "NORMAL")


def test_nothing_to_move_is_said_with_the_reason(operator, plant, calm):
    answer = fetch(operator, "/plans/rebalance", {"goal": "below-busy"})
    assert answer.status_code == 422
    assert answer.json()["errors"]["goal"] == [
        "No action: every node is below BUSY. (Worst node: 0 % of its capacity.)"
    ]
    assert not Plan.objects.exists()


def test_a_plan_is_approved_by_its_hash_and_runs(operator, plant, calm):
    by_hand(operator)
    plan = Plan.objects.get()
    assert fetch(operator, f"/plans/{plan.pk}/approve", {"hash": plan.hash, **REASON}).json()["ok"]
    execution.advance(plan, plant.control, plant.now)
    assert plant.points() == {"n1": 200, "n2": 467, "n3": 333}
    plan.refresh_from_db()
    assert plan.state == "done" and plan.approvals[0]["by"] == "operator"
    noted = AuditEntry.objects.latest("id")
    assert (noted.action, noted.before, noted.reason) == ("plan.approve", {"state": "proposed"}, REASON["reason"])


def test_another_hash_a_second_approval_and_drift_are_refused_with_the_reason(operator, plant, calm):
    by_hand(operator)
    by_hand(operator, 300, 367, 333)
    first, second = Plan.objects.order_by("pk")
    posted = {"hash": second.hash, **REASON}
    assert list(fetch(operator, f"/plans/{first.pk}/approve", posted).json()["errors"]) == ["hash"]
    posted = {"hash": first.hash, **REASON}
    assert fetch(operator, f"/plans/{first.pk}/approve", posted).status_code == 200
    again = fetch(operator, f"/plans/{first.pk}/approve", posted).json()["errors"]["plan"][0]
    assert "already approved" in again
    execution.advance(first, plant.control, plant.now)
    drifted = fetch(operator, f"/plans/{second.pk}/approve", {"hash": second.hash, **REASON})
    assert "The points of queue alert have changed since the plan was proposed." in drifted.json()["errors"]["plan"][0]
    assert [row for row in audited() if row[1] == "plan.approve"] == [("operator", "plan.approve", f"plan {first.pk}")]


def test_an_old_snapshot_is_no_ground_to_approve_on(operator, plant, calm):
    by_hand(operator)
    plan = Plan.objects.get()
    plant.control.set(keys.SNAPSHOT, replace_fields(calm, at=time.time() - 60).to_json())
    refused = fetch(operator, f"/plans/{plan.pk}/approve", {"hash": plan.hash, **REASON})
    assert "last observed 60 s ago" in refused.json()["errors"]["plant"][0]
    plant.control.delete(keys.SNAPSHOT)
    refused = fetch(operator, f"/plans/{plan.pk}/approve", {"hash": plan.hash, **REASON})
    assert "not observed yet" in refused.json()["errors"]["plant"][0]
    plan.refresh_from_db()
    assert plan.state == "proposed"


def test_a_rejected_plan_is_over(operator, plant, calm):
    by_hand(operator)
    plan = Plan.objects.get()
    assert fetch(operator, f"/plans/{plan.pk}/reject", REASON).status_code == 200
    assert fetch(operator, f"/plans/{plan.pk}/approve", {"hash": plan.hash, **REASON}).status_code == 422
    assert [each.id for each in operator.get("/plans/").context["ended"]] == [plan.pk]
    assert audited()[-1] == ("operator", "plan.reject", f"plan {plan.pk}")


def test_an_approved_plan_is_stopped_and_a_done_one_rolled_back_by_a_plan(browsers, operator, plant, calm):
    by_hand(operator)
    stopped = Plan.objects.get()
    fetch(operator, f"/plans/{stopped.pk}/approve", {"hash": stopped.hash, **REASON})
    assert fetch(operator, f"/plans/{stopped.pk}/stop", REASON).status_code == 200
    execution.advance_all(plant.control, plant.now)
    assert plant.points() == EVEN
    by_hand(operator)
    done = Plan.objects.latest("pk")
    fetch(operator, f"/plans/{done.pk}/approve", {"hash": done.hash, **REASON})
    execution.advance_all(plant.control, plant.now)
    seen = browsers["viewer"].get(f"/plans/{done.pk}/").content.decode()
    assert "Rolling back requires the operator role." in seen
    back = fetch(operator, f"/plans/{done.pk}/roll-back", REASON).json()
    undoing = operator.get(back["go"]).context["plan"]
    assert undoing.headline == f"Roll back plan {done.pk}: move 134 points back"
    assert operator.get(f"/plans/{done.pk}/").context["undone_by"].pk == back["plan"]


def test_a_node_is_drained_by_a_plan_and_taken_back(operator, plant, calm):
    answer = fetch(operator, "/nodes/use", {"node": "n2", "use": "drain", **REASON})
    plan = operator.get(answer.json()["go"]).context["plan"]
    assert plan.headline == "Drain n2: move 999 points to other nodes"
    emptied = next(row for row in plan.dumbbells if row.name == "n2")
    assert (emptied.points_after, emptied.state_after) == (0, "IDLE")
    Node.objects.filter(name="n2").update(drained=True)
    assert fetch(operator, "/nodes/use", {"node": "n2", "use": "return", **REASON}).status_code == 200
    assert not Node.objects.get(name="n2").drained
    assert audited()[-1] == ("operator", "node.use", "n2")


def test_a_node_that_was_lost_is_offered_its_points_again(operator, plant, calm):
    assert "Restore points" not in operator.get("/nodes/n3/").content.decode()
    for _ in range(14):
        snapshot = plant.pass_seconds(1, silent=("n3",))
        recovery.recover(plant.control, snapshot, plant.now)
        execution.advance_all(plant.control, plant.now)
    stored(plant, plant.pass_seconds(3))
    assert plant.points() == {"n1": 501, "n2": 499}
    assert "Restore points of n3" in operator.get("/nodes/n3/").content.decode()
    answer = fetch(operator, "/nodes/use", {"node": "n3", "use": "give-back", **REASON})
    plan = Plan.objects.get(pk=answer.json()["plan"])
    assert (plan.state, plan.title) == ("proposed", "Restore points of n3: 999 points")
    again = fetch(operator, "/nodes/use", {"node": "n1", "use": "give-back", **REASON})
    assert list(again.json()["errors"]) == ["node"]


def test_a_cordoned_node_says_so_to_producers_and_is_taken_back(operator, plant, calm):
    assert fetch(operator, "/nodes/use", {"node": "n2", "use": "cordon", **REASON}).status_code == 200
    assert Topology.from_json(plant.control.get(keys.TOPOLOGY)).nodes["n2"].cordoned
    again = fetch(operator, "/nodes/use", {"node": "n2", "use": "cordon", **REASON})
    assert "already cordoned" in again.json()["errors"]["node"][0]
    assert fetch(operator, "/nodes/use", {"node": "n2", "use": "return", **REASON}).status_code == 200
    assert not Topology.from_json(plant.control.get(keys.TOPOLOGY)).nodes["n2"].cordoned
    assert len(audited()) == 2


@pytest.mark.parametrize(
    ("posted", "field"),
    [
        ({"use": "drain", **REASON}, "node"),
        ({"node": "n2", "use": "drain"}, "reason"),
        ({"node": "n2", "use": "burn", **REASON}, "use"),
        ({"node": "n9", "use": "cordon", **REASON}, "node"),
        ({"node": "n2", "use": "return", **REASON}, "node"),
    ],
)
def test_what_cannot_be_done_to_a_node_is_refused_and_not_noted(posted, field, operator, plant, calm):
    answer = fetch(operator, "/nodes/use", posted)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert audited() == [] and not Node.objects.filter(cordoned=True).exists()


def test_a_plain_form_that_is_refused_gets_its_page_again(operator, plant, calm):
    for address, posted in (
        ("/plans/rebalance", {"goal": "band"}),
        ("/nodes/use", {"node": "n2", "use": "return", **REASON}),
        ("/nodes/use", {"node": "n9", "use": "cordon", **REASON}),
        ("/queues/alert/points", {"points-n1": "1000", **REASON}),
    ):
        answer = operator.post(address, posted)
        assert answer.status_code == 422
        assert "Nothing was changed." in answer.content.decode(), address


def test_a_token_approves_a_plan_over_the_api_as_it_was_seen(secrets, operator, plant):
    busy(plant)
    headers = {"HTTP_AUTHORIZATION": f"Bearer {secrets['operator']}"}

    def post(address, body):
        return Client().post(f"/api/v1/plans{address}", body, content_type="application/json", **headers)

    made = post("", {"goal": "below-busy"}).json()
    assert Client().get(f"/api/v1/plans/{made['id']}", **headers).json()["moves"] == made["moves"]
    assert post(f"/{made['id']}/approve", {"hash": "0" * 64, **REASON}).status_code == 422
    assert post(f"/{made['id']}/approve", {"hash": made["hash"], **REASON}).json()["state"] == "approved"
    assert post(f"/{made['id']}/reject", REASON).status_code == 422
    assert post(f"/{made['id']}/stop", REASON).json()["state"] == "stopped"
    shown = Client().get("/api/v1/plans?state=stopped", **headers).json()["plans"]
    assert [each["id"] for each in shown] == [made["id"]]
    assert Client().get("/api/v1/plans?state=odd", **headers).status_code == 422
    assert Client().get("/api/v1/plans/999", **headers).status_code == 404
    assert audited()[-1][0] == "token:of-operator"


def test_the_worst_node_is_first_and_an_unknown_one_before_it():
    row = NodeForecast(utilisation=0.5, state="NORMAL", points=10)
    before = {"n1": row, "n2": replace_fields(row, utilisation=None), "n3": replace_fields(row, utilisation=0.9)}
    rows = build_dumbbells(PlanDocument(id=1, state="proposed", before=before, after=before), NOTHING_SEEN)
    assert [each.name for each in rows] == ["n2", "n3", "n1"]
    assert not any(each.draws_line for each in rows)


@pytest.mark.parametrize("kind", Plan.Kind.values)
def test_every_kind_of_plan_has_a_headline(kind):
    move = PlanMove(queue="alert", source="n1", target="n2", points=120)
    plan = PlanDocument(id=4, state="proposed", kind=kind, points=120, moves=[move], empties="n1", undoes=3)
    assert "120 points" in describe_plan(plan)


def test_two_persons_approve_where_their_role_is_set_so(browsers, people, plant, calm):
    plant_settings.change("approvals.operator", 2, people["administrator"], timezone.now())
    by_hand(browsers["operator"])
    plan = Plan.objects.get()
    address, posted = f"/plans/{plan.pk}/approve", {"hash": plan.hash, "reason": "I have looked at it"}
    page = browsers["operator"].get(f"/plans/{plan.pk}/").content.decode()
    assert "Approve plan (1 of 2)" in page
    first = fetch(browsers["operator"], address, posted)
    assert "when a second user approves it" in first.json()["message"]
    assert AuditEntry.objects.latest("id").after["approvals"] == 1
    again = fetch(browsers["operator"], address, posted)
    assert (again.status_code, list(again.json()["errors"])) == (422, ["plan"])
    page = browsers["operator"].get(f"/plans/{plan.pk}/")
    assert "1 of 2 approvals" in page.content.decode()
    assert "You have already approved" in page.context["approval"].refusal
    execution.advance_all(plant.control, plant.now)
    assert Plan.objects.get().state == "proposed"
    assert fetch(browsers["administrator"], address, posted).status_code == 200
    plan.refresh_from_db()
    assert (plan.state, [each["by"] for each in plan.approvals]) == ("approved", ["operator", "administrator"])


def test_a_token_of_the_same_person_is_not_somebody_else(browsers, people, secrets, plant, calm, client):
    plant_settings.change("approvals.operator", 2, people["administrator"], timezone.now())
    by_hand(browsers["operator"])
    plan = Plan.objects.get()
    body = {"hash": plan.hash, "reason": "I have looked at it"}
    fetch(browsers["operator"], f"/plans/{plan.pk}/approve", body)
    headers = {"Authorization": f"Bearer {secrets['operator']}"}
    answer = client.post(f"/api/v1/plans/{plan.pk}/approve", body, content_type="application/json", headers=headers)
    assert (answer.status_code, Plan.objects.get().state) == (422, "proposed")
