"""What people do from a page: it happens, it is noted, or it is refused with a word at the field."""

from datetime import timedelta

import pytest
import redis
from django.utils import timezone

from console.accounts.access import build_user_actor
from console.actions import loops
from console.embedded.seeding import seed
from console.models import AuditEntry
from queues import keys
from queues.models import Node
from queues.topology import Topology
from tests.console.page_form import audited, fetch
from tests.console.rows import held
from workers.models import Loop, Override
from workers.steering import overrides
from workers.steering.overrides import Expiry

pytestmark = pytest.mark.django_db


def in_force(loop):
    return {each.name: each.value for each in overrides.list_active(timezone.now()).filter(loop=loop)}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (redis.TimeoutError("Timeout reading from socket"), "The change may have been made"),
        (redis.ConnectionError("Connection closed by server."), "The change may have been made"),
        (redis.ConnectionError("Error 111 connecting to control:6379. Refused."), "Nothing was changed"),
        (redis.TimeoutError("Timeout connecting to server"), "Nothing was changed"),
    ],
)
def test_a_control_server_that_was_asked_and_does_not_answer_may_do_it_yet(
    error, said, operator, loop, control, monkeypatch
):
    def failing(*given, **named):
        raise error

    monkeypatch.setattr(overrides, "read_reason", failing)
    posted = {"name": "upper_limit", "value": "500", "reason": "a burst", "minutes": "2"}
    answer = fetch(operator, f"/loops/{loop.pk}/override", posted)
    assert answer.status_code == 503 and said in answer.json()["errors"]["control"][0]
    page = operator.post(f"/loops/{loop.pk}/override", posted).content.decode()
    assert said in page and page.count("Nothing was changed.") == said.count("Nothing was changed")


def test_an_override_by_name_is_in_force_noted_and_can_be_undone(operator, loop, control):
    posted = {"name": "upper_limit", "value": "500", "reason": "a burst", "minutes": "2"}
    answer = fetch(operator, f"/loops/{loop.pk}/override", posted)
    assert answer.status_code == 200 and answer.json()["ok"]
    assert in_force(loop) == {"upper_limit": 500}
    assert audited() == [("operator", "override.set", loop.name)]
    noted = AuditEntry.objects.get()
    assert (noted.before, noted.after["upper_limit"], noted.reason) == ({"upper_limit": 1000}, 500, "a burst")
    assert noted.address == "127.0.0.1"
    (number,) = answer.json()["overrides"]
    assert fetch(operator, f"/overrides/{number}/end").json()["ok"]
    assert in_force(loop) == {}
    assert audited()[1:] == [("operator", "override.end", loop.name)]


def test_what_is_undone_gives_back_what_it_had_replaced(operator, browsers, secrets, loop, control):
    address, longer = f"/loops/{loop.pk}/override", {"reason": "a sale", "minutes": "480"}
    fetch(browsers["administrator"], address, {"would-upper_limit": "30", **longer})
    posted = {"would-upper_limit": "40", "would-raise_factor": "1.3", "reason": "a test", "minutes": "30"}
    first, _ = fetch(operator, address, posted).json()["overrides"]
    assert in_force(loop) == {"upper_limit": 40, "raise_factor": 1.3}
    answer = fetch(operator, f"/overrides/{first}/undo")
    assert answer.status_code == 200 and " is 30 again, set by administrator" in answer.json()["message"]
    assert in_force(loop) == {"upper_limit": 30}
    (held,) = overrides.list_active(timezone.now())
    assert (held.owner.get_username(), held.reason) == ("administrator", "a sale")
    assert held.expires_at - timezone.now() > timedelta(minutes=470)
    assert [action for _, action, _ in audited()] == ["override.set"] * 3 + ["override.undo"] * 2
    assert "had already ended" in fetch(operator, f"/overrides/{first}/undo").json()["message"]


GOOD = {"name": "upper_limit", "value": "500", "reason": "a test", "minutes": "2"}
# What only a form can get wrong; values, reasons, and expiries are checked below pages and API alike.
BAD = {
    "no value": (GOOD | {"value": ""}, "value"),
    "not finite": (GOOD | {"value": "1e999"}, "value"),
    "a reason too long": (GOOD | {"reason": "x" * 3000}, "reason"),
    "never": (GOOD | {"minutes": "inf"}, "minutes"),
    "no time": (GOOD | {"minutes": "", "expires_at": "soon"}, "expires_at"),
    "nothing changed": (
        {"would-upper_limit": "1000", "would-history": "12", "reason": "a test", "minutes": "2"},
        "value",
    ),
    "a field out of range": ({"would-upper_limit": "-1", "reason": "a test", "minutes": "2"}, "would-upper_limit"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_override_is_refused_at_its_field_and_changes_nothing(case, operator, loop):
    posted, field = BAD[case]
    answer = fetch(operator, f"/loops/{loop.pk}/override", posted)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert not Override.objects.exists() and audited() == []


@pytest.fixture
def flow_loop(db):
    gains = {"kp": -0.005589, "ki": -0.001293, "kd": 0.685}
    return Loop.objects.create(
        name="flow", law="flow", target={}, parameters={**gains, "a": 0.985, "b": -134.0, "delay": 1}
    )


def test_gains_that_are_unstable_on_the_model_are_refused_and_said_so_before(operator, browsers, flow_loop):
    posted = {"would-kd": "0", "would-kp": "-0.006141", "would-ki": "-0.007986", "reason": "x", "minutes": "5"}
    answer = fetch(operator, f"/loops/{flow_loop.pk}/override", posted)
    assert answer.status_code == 422 and "spectral radius 1.515" in str(answer.json()["errors"])
    assert in_force(flow_loop) == {}
    typed = {name: value for name, value in posted.items() if name.startswith("would-")}
    prediction = browsers["viewer"].get(f"/loops/{flow_loop.pk}/predicted", typed).context["prediction"]
    assert prediction.grave and "1.515" in prediction.sentence


def test_gains_that_are_stable_only_together_are_set_together(operator, flow_loop):
    alone = {"would-kd": "1.893", "reason": "x", "minutes": "5"}
    assert fetch(operator, f"/loops/{flow_loop.pk}/override", alone).status_code == 422
    together = {**alone, "would-kp": "-0.013915", "would-ki": "-0.007986"}
    assert fetch(operator, f"/loops/{flow_loop.pk}/override", together).status_code == 200
    assert in_force(flow_loop) == {"kp": -0.013915, "ki": -0.007986, "kd": 1.893}


def test_a_hold_has_an_end_and_auto_resumes_before_it(operator, loop):
    address = f"/loops/{loop.pk}/mode"
    assert fetch(operator, address, {"mode": "hold", "reason": "x"}).json()["errors"].keys() == {"minutes"}
    assert fetch(operator, address, {"mode": "hold", "reason": "x", "minutes": "30"}).status_code == 200
    assert in_force(loop) == {"mode": "hold"}
    assert fetch(operator, address, {"mode": "auto", "reason": "done"}).status_code == 200
    loop.refresh_from_db()
    assert (in_force(loop), loop.mode) == ({}, "auto")
    assert [action for _, action, _ in audited()] == ["loop.mode", "loop.mode"]
    assert AuditEntry.objects.latest("id").before == {"mode": "hold"}


def test_the_api_names_both_overrides_of_a_value_by_hand_and_takes_none_for_another_mode(browsers, loop):
    def post(**body):
        address = f"/api/v1/loops/{loop.pk}/mode"
        return browsers["operator"].post(address, {"reason": "x", **body}, content_type="application/json")

    assert list(post(mode="hold", minutes=5, value=3).json()["errors"]) == ["value"]
    assert list(post(mode="auto", value=3).json()["errors"]) == ["value"] and in_force(loop) == {}
    made = post(mode="manual", minutes=5, value=3).json()
    assert [row["name"] for row in made["overrides"]] == ["mode", "start"]
    assert made["override"] == made["overrides"][0]


@pytest.mark.parametrize(
    ("posted", "field"),
    [
        ({"mode": "fast", "reason": "x"}, "mode"),
        ({"mode": "advise", "reason": ""}, "reason"),
        ({"mode": "hold", "reason": "", "minutes": "5"}, "reason"),
        ({"mode": "hold", "reason": "x", "minutes": "0"}, "minutes"),
        ({"mode": "manual", "reason": "x", "minutes": "5", "value": "some"}, "value"),
    ],
)
def test_a_bad_mode_is_refused_at_its_field(posted, field, operator, loop):
    answer = fetch(operator, f"/loops/{loop.pk}/mode", posted)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    loop.refresh_from_db()
    assert (loop.mode, in_force(loop)) == ("auto", {})


def test_an_override_is_extended_by_minutes_beyond_its_end(operator, people, loop, control):
    end = timezone.now() + timedelta(minutes=10)
    held = Override.objects.create(
        loop=loop, name="upper_limit", value=1, owner=people["operator"], reason="x", expires_at=end
    )
    assert fetch(operator, f"/overrides/{held.pk}/extend", {"minutes": "30"}).status_code == 200
    held.refresh_from_db()
    assert held.expires_at == end + timedelta(minutes=30)
    for refused in ({"minutes": "10080"}, {"expires_at": end.isoformat()}):
        assert fetch(operator, f"/overrides/{held.pk}/extend", refused).status_code == 422
    held.refresh_from_db()
    assert held.expires_at == end + timedelta(minutes=30)


def test_what_is_over_is_not_extended_and_ending_it_again_notes_nothing(operator, people, loop, control):
    past = timezone.now() - timedelta(minutes=1)
    held = Override.objects.create(
        loop=loop, name="upper_limit", value=1, owner=people["operator"], reason="x", expires_at=past
    )
    assert fetch(operator, f"/overrides/{held.pk}/extend", {"minutes": "5"}).status_code == 422
    assert "had already ended" in fetch(operator, f"/overrides/{held.pk}/end").json()["message"]
    assert audited() == []


@pytest.fixture
def seeded(control, settings, tmp_path):
    settings.WEIR_DATA = tmp_path
    return seed(control, {"WEIR_NODES": "n1=redis://127.0.0.1:1/0 n2=redis://127.0.0.1:2/0"})


THRESHOLDS = {"busy": "0.4", "toobusy": "0.6", "reason": "a hot day", "minutes": "5"}


def test_thresholds_reach_the_agents_and_come_back(operator, seeded, control):
    answer = fetch(operator, "/nodes/n1/thresholds", THRESHOLDS)
    assert answer.status_code == 200
    node = Topology.from_json(control.get(keys.TOPOLOGY)).nodes["n1"]
    assert (node.busy, node.toobusy) == (0.4, 0.6)
    for number in answer.json()["overrides"]:
        fetch(operator, f"/overrides/{number}/end")
    node = Topology.from_json(control.get(keys.TOPOLOGY)).nodes["n1"]
    assert (node.busy, node.toobusy) == (0.7, 0.9)


@pytest.mark.parametrize(("busy", "toobusy"), [("0.2", "0.3"), ("0.92", "0.97")])
def test_both_thresholds_move_together_in_either_direction(busy, toobusy, operator, seeded, control):
    posted = {**THRESHOLDS, "busy": busy, "toobusy": toobusy}
    assert fetch(operator, "/nodes/n1/thresholds", posted).status_code == 200
    node = Topology.from_json(control.get(keys.TOPOLOGY)).nodes["n1"]
    assert (node.busy, node.toobusy) == (float(busy), float(toobusy))


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"busy": "0.95"}, "busy"),
        ({"toobusy": "1.2"}, "toobusy"),
        ({"busy": "0", "toobusy": "0.9"}, "busy"),
        ({"busy": "hot"}, "busy"),
        ({"busy": "0.7", "toobusy": "0.9"}, "busy"),
    ],
)
def test_bad_thresholds_are_refused_at_their_field(change, field, operator, seeded, control):
    before = control.get(keys.TOPOLOGY)
    posted = {**THRESHOLDS, **({"toobusy": "0.9"} if change.get("busy") == "0.95" else {}), **change}
    answer = fetch(operator, "/nodes/n1/thresholds", posted)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert control.get(keys.TOPOLOGY) == before
    assert not Override.objects.exists()


def test_a_threshold_that_nobody_touched_does_not_end_a_colleagues(operator, seeded, people):
    held(people["administrator"], "busy_threshold", 0.5, node=Node.objects.get(name="n1"))
    posted = {"was-busy": "0.7", "busy": "0.7", "was-toobusy": "0.9", "toobusy": "0.95"}
    assert fetch(operator, "/nodes/n1/thresholds", {**THRESHOLDS, **posted}).status_code == 200
    found = {each.name: each.value for each in overrides.list_active(timezone.now())}
    assert found == {"busy_threshold": 0.5, "toobusy_threshold": 0.95}


@pytest.mark.parametrize("beside", [{"loop": 1}, {"law": "worker_rate"}, {"queue": "alert"}])
def test_a_nodes_threshold_over_the_api_takes_no_other_scope(beside, operator, seeded):
    body = {"node": "n1", "name": "busy", "value": 0.5, "reason": "x", "minutes": 5, **beside}
    answer = operator.post("/api/v1/overrides", body, content_type="application/json")
    assert (answer.status_code, list(answer.json()["errors"])) == (422, list(beside))
    assert not Override.objects.exists()


def test_two_who_extend_and_end_at_once_take_nothing_from_each_other(people, loop, control):
    end = timezone.now() + timedelta(minutes=10)
    held = Override.objects.create(
        loop=loop, name="upper_limit", value=1, owner=people["operator"], reason="x", expires_at=end
    )
    actor, now = build_user_actor(people["operator"]), timezone.now()
    first, second = (Override.objects.get(pk=held.pk) for _ in range(2))  # read before either writes
    for seen, minutes in ((first, 60), (second, 5)):
        loops.extend_override(actor, seen, Expiry(minutes), now=now, control=control)
    held.refresh_from_db()
    assert held.expires_at == end + timedelta(minutes=65)
    both = [Override.objects.get(pk=held.pk) for _ in range(2)]
    assert [loops.end_override(actor, seen, now=now, control=control) for seen in both] == [True, False]
    assert AuditEntry.objects.filter(action="override.end").count() == 1
