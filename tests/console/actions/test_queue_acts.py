"""Queues that people pause, hosts that they drain, events that they look at: authorised, audited, undone."""

import orjson
import pytest
from django.utils import timezone

from console.api.ingestion import events as publisher
from console.embedded.seeding import seed
from console.models import AuditEntry
from queues import circuit_hold, keys, pausing
from queues.events.block import BlockIds, cut, from_events
from queues.models import Queue
from queues.segments.segment import Segment
from tests.console.page_form import fetch
from workers.models import Loop, Override
from workers.steering import enforcing

pytestmark = pytest.mark.django_db


HOST = "jobs@here"
PAUSE = {"part": "consumption", "reason": "a disk is changed", "minutes": 10}


@pytest.fixture
def plant(control, settings):
    seed(control, {"WEIR_NODES": "n1=redis://127.0.0.1:1/0 n2=redis://127.0.0.1:1/1"})
    hosts = {HOST: "jobs", "control@here": "control"}
    for name, role in hosts.items():
        control.hset(keys.HOSTS, name, orjson.dumps({"role": role, "slots": 2, "busy": 0, "pid": 1, "at": 0.0}))


def ask(browser, address, body, secret=None):
    headers = {"authorization": f"Bearer {secret}"} if secret else {}
    return browser.post(f"/api/v1/{address}", body, content_type="application/json", headers=headers)


def audited():
    rows = AuditEntry.objects.order_by("id")
    return [(each.actor, each.action, each.target) for each in rows if each.actor != "system"]


def test_a_pause_from_the_page_is_in_force_noted_and_ended_from_there(plant, browsers, control):
    answer = fetch(browsers["operator"], "/queues/alert/pause", PAUSE)
    assert answer.status_code == 200, answer.content
    assert "Consumption of alert is paused until" in answer.json()["message"]
    assert pausing.load_pauses(control, ["alert"], "consumption")["alert"].by == "operator"
    assert audited()[-1] == ("operator", "queue.pause", "queue alert")
    noted = AuditEntry.objects.last()
    assert (noted.reason, noted.before) == ("a disk is changed", {"consumption": "open"})
    (number,) = answer.json()["overrides"]
    page = browsers["viewer"].get("/queues/alert/").content.decode()
    assert "a disk is changed" in page and "Consumption paused" in " ".join(page.split())
    assert fetch(browsers["operator"], f"/overrides/{number}/end", {}).status_code == 200
    assert not pausing.load_pauses(control, ["alert"], "consumption")
    assert audited()[-1] == ("operator", "override.end", "queue alert")


HOLD = {"circuit": "open", "reason": "the shop is repaired", "minutes": 10}


@pytest.fixture
def caller(plant):
    """The queue alert, whose handler calls a destination."""
    Queue.objects.filter(name="alert").update(handler="webhook", handler_options={"url": "https://shop.example/events"})


def test_a_circuit_is_held_from_the_page_noted_and_ended_from_there(caller, browsers, control):
    answer = fetch(browsers["operator"], "/queues/alert/circuit", HOLD)
    assert answer.status_code == 200, answer.content
    assert "The circuit of alert is held open until" in answer.json()["message"]
    assert circuit_hold.read(control.get(keys.CIRCUIT_HOLD.build("alert"))) == "open"
    assert audited()[-1] == ("operator", "queue.circuit", "queue alert")
    assert AuditEntry.objects.last().before == {"circuit": "automatic"}
    (number,) = answer.json()["overrides"]
    assert "the shop is repaired" in browsers["viewer"].get("/queues/alert/").content.decode()
    assert fetch(browsers["operator"], f"/overrides/{number}/end", {}).status_code == 200
    assert not control.exists(keys.CIRCUIT_HOLD.build("alert"))


def test_the_api_holds_a_circuit_in_place_of_an_earlier_hold(caller, browsers, secrets, control):
    for circuit in ("open", "closed"):
        made = ask(browsers["anonymous"], "queues/alert/circuit", {**HOLD, "circuit": circuit}, secrets["operator"])
        assert made.status_code == 201, made.content
    assert circuit_hold.read(control.get(keys.CIRCUIT_HOLD.build("alert"))) == "closed"
    assert Override.objects.filter(ended_at__isnull=True).count() == 1


def test_a_lost_hold_of_a_circuit_is_restored_and_one_without_a_record_removed(caller, browsers, control):
    assert fetch(browsers["operator"], "/queues/alert/circuit", HOLD).status_code == 200
    control.delete(keys.CIRCUIT_HOLD.build("alert"))
    circuit_hold.hold(control, "process", circuit_hold.CircuitHold("open", "lost", "ada"), 60.0)
    assert enforcing.reconcile(control, timezone.now()) == 2
    assert control.exists(keys.CIRCUIT_HOLD.build("alert"))
    assert not control.exists(keys.CIRCUIT_HOLD.build("process"))


@pytest.mark.parametrize(
    ("queue", "wrong", "field"),
    [("alert", {"circuit": "half"}, "circuit"), ("alert", {"minutes": ""}, "expires_at"), ("process", {}, "queue")],
)
def test_a_hold_that_makes_no_sense_names_the_field_and_changes_nothing(caller, browsers, queue, wrong, field):
    Queue.objects.filter(name="process").update(handler="noop", handler_options={})
    answer = fetch(browsers["operator"], f"/queues/{queue}/circuit", HOLD | wrong)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert not Override.objects.exists()


def test_the_api_pauses_extends_and_resumes(plant, browsers, secrets, control):
    secret = secrets["operator"]
    made = ask(browsers["anonymous"], "queues/alert/pause", {**PAUSE, "part": "intake"}, secret)
    assert made.status_code == 201 and made.json()["name"] == "intake"
    number = made.json()["id"]
    before = control.pttl(keys.PAUSE.build("alert", "intake"))
    longer = ask(browsers["anonymous"], f"overrides/{number}/extend", {"minutes": 30}, secret)
    assert longer.status_code == 200 and control.pttl(keys.PAUSE.build("alert", "intake")) > before + 1_000_000
    ended = ask(browsers["anonymous"], "queues/alert/resume", {"part": "intake"}, secret)
    assert ended.status_code == 200 and ended.json()["ended"]
    assert not control.exists(keys.PAUSE.build("alert", "intake"))
    again = ask(browsers["anonymous"], "queues/alert/resume", {"part": "intake"}, secret)
    assert again.status_code == 422 and "part" in again.json()["errors"]


def test_producers_over_http_are_asked_to_come_back_and_nothing_is_stored(plant, browsers, secrets, control):
    assert fetch(browsers["operator"], "/queues/alert/pause", {**PAUSE, "part": "intake"}).status_code == 200
    try:
        headers = {"authorization": f"Bearer {secrets['producer']}"}
        answer = browsers["anonymous"].post(
            "/api/v1/queues/alert/events", b'{"type": "t"}\n', content_type="application/x-ndjson", headers=headers
        )
    finally:
        publisher.get_publisher_client().close()
        publisher._get_client.cache_clear()
    assert answer.status_code == 503
    assert 590 <= int(answer["Retry-After"]) <= 600
    (said,) = answer.json()["errors"]["queue"]
    assert said.startswith("Intake of alert is paused for") and "a disk is changed" in said


@pytest.mark.parametrize(
    "wrong, field",
    [
        ({"part": "everything"}, "part"),
        ({"part": ""}, "part"),
        ({"reason": " "}, "reason"),
        ({"minutes": "0"}, "minutes"),
        ({"minutes": ""}, "expires_at"),
    ],
)
def test_a_pause_that_says_too_little_names_the_field_and_changes_nothing(plant, browsers, control, wrong, field):
    answer = fetch(browsers["operator"], "/queues/alert/pause", PAUSE | wrong)
    assert answer.status_code == 422 and list(answer.json()["errors"]) == [field]
    assert not Override.objects.exists() and not pausing.load_pauses(control, ["alert"], "consumption")


LONG = {"part": "consumption", "reason": "its database is restored", "minutes": 480}


def test_a_pause_that_ends_sooner_than_the_one_in_force_is_refused_and_says_whose_it_is(
    plant, browsers, secrets, control
):
    assert fetch(browsers["administrator"], "/queues/alert/pause", LONG).status_code == 200
    left = control.pttl(keys.PAUSE.build("alert", "consumption"))
    answer = fetch(browsers["operator"], "/queues/alert/pause", PAUSE)
    (said,) = answer.json()["errors"]["part"]
    assert answer.status_code == 422 and "by administrator (its database is restored)" in said
    assert ask(browsers["anonymous"], "queues/alert/pause", PAUSE, secrets["operator"]).status_code == 422
    assert Override.objects.count() == 1
    assert left - 60_000 < control.pttl(keys.PAUSE.build("alert", "consumption")) <= left


def test_a_longer_pause_takes_the_place_of_the_shorter_one_and_says_and_notes_so(plant, browsers, control):
    assert fetch(browsers["administrator"], "/queues/alert/pause", PAUSE).status_code == 200
    answer = fetch(browsers["operator"], "/queues/alert/pause", LONG)
    assert "administrator set paused for queue alert (ended)." in answer.json()["message"]
    noted = AuditEntry.objects.last()
    assert noted.before["consumption"] == "paused"
    assert [row["owner"] for row in noted.before["replaces"]] == ["administrator"]


def test_a_host_is_drained_shown_and_taken_back(plant, browsers, secrets, control, stored_snapshot):
    answer = fetch(browsers["operator"], f"/workers/{HOST}/drain", {"reason": "a kernel", "minutes": "30"})
    assert answer.status_code == 200, answer.content
    assert control.exists(keys.DRAIN.build(HOST))
    assert audited()[-1] == ("operator", "host.drain", f"worker host {HOST}")
    page = " ".join(browsers["viewer"].get(f"/workers/{HOST}/").content.decode().split())
    assert "a kernel" in page and "Work draining" in page
    ended = ask(browsers["anonymous"], f"workers/{HOST}/return", {}, secrets["operator"])
    assert ended.status_code == 200 and not control.exists(keys.DRAIN.build(HOST))


def test_the_only_host_that_runs_the_loops_is_not_drained(plant, browsers, control):
    given = {"reason": "a kernel", "minutes": "30"}
    answer = fetch(browsers["operator"], "/workers/control@here/drain", given)
    assert answer.status_code == 422
    assert "is the only host that runs the control loops" in answer.json()["errors"]["host"][0]
    assert fetch(browsers["operator"], "/workers/nobody/drain", given).status_code in (404, 422)
    assert not Override.objects.exists()


@pytest.mark.parametrize(("silent_seconds", "status"), [(0.0, 200), (3_600.0, 422)])
def test_a_host_that_runs_the_loops_is_drained_while_another_works(plant, browsers, control, silent_seconds, status):
    at = timezone.now().timestamp() - silent_seconds
    report = {"role": "control", "slots": 2, "busy": 0, "pid": 1, "at": at}
    control.hset(keys.HOSTS, "control@there", orjson.dumps(report))
    given = {"reason": "a kernel", "minutes": "30"}
    assert fetch(browsers["operator"], "/workers/control@here/drain", given).status_code == status
    assert fetch(browsers["operator"], "/workers/control@there/drain", given).status_code == 422


def test_a_loops_override_can_not_pause_a_queue_past_its_action(plant, browsers, secrets, control):
    Loop.objects.get_or_create(
        name="worker_rate/alert/n1", defaults={"law": "worker_rate", "target": {"queue": "alert", "node": "n1"}}
    )
    body = {"name": "consumption", "value": "paused", "queue": "alert", "reason": "x", "minutes": 5}
    answer = ask(browsers["anonymous"], "overrides", body, secrets["operator"])
    assert answer.status_code == 422 and not Override.objects.exists()


@pytest.fixture
def waiting(control, nodes):
    """Two events of queue alert on n1, one with a script for a source."""
    seed(control, {"WEIR_NODES": " ".join(f"{name}={server.url}" for name, server in nodes.items())})
    rows = [{"id": "event-one", "type": "t", "source": "<script>x</script>"}, {"id": "event-two", "type": "t"}]
    Segment(nodes["n1"].client(), "alert").publish(cut(from_events(rows, 1_000_000), BlockIds()))


def test_an_operator_sees_them_as_text_and_that_is_noted(waiting, browsers):
    page = browsers["operator"].get("/queues/alert/waiting/?node=n1&order=oldest&events=5").content.decode()
    assert page.index("event-one") < page.index("event-two")
    assert "&lt;script&gt;x&lt;/script&gt;" in page and "<script>x" not in page
    noted = AuditEntry.objects.get(action="queue.peek")
    assert (noted.actor, noted.target, noted.after) == ("operator", "alert/n1", {"order": "oldest", "events": 2})


def test_a_viewer_is_refused_and_the_refusal_is_noted_without_an_event(waiting, browsers):
    assert browsers["viewer"].get("/queues/alert/waiting/?node=n1").status_code == 403
    assert "waiting events" not in browsers["viewer"].get("/queues/alert/").content.decode()
    assert not AuditEntry.objects.filter(action="queue.peek").exists()


@pytest.mark.parametrize(
    "query, field", [("node=n9", "node"), ("node=n1&order=best", "order"), ("node=n1&events=101", "events")]
)
def test_what_is_asked_wrongly_names_its_field(waiting, browsers, secrets, query, field):
    page = browsers["operator"].get(f"/queues/alert/waiting/?{query}")
    assert page.status_code == 422 and f"{field.capitalize()}: " in page.content.decode()
    headers = {"authorization": f"Bearer {secrets['operator']}"}
    answer = browsers["anonymous"].get(f"/api/v1/queues/alert/waiting?{query}", headers=headers)
    assert answer.status_code == 422 and list(answer.json()["errors"]) == [field]


def test_the_api_gives_the_same(waiting, browsers, secrets):
    headers = {"authorization": f"Bearer {secrets['operator']}"}
    answer = browsers["anonymous"].get("/api/v1/queues/alert/waiting?node=n1&events=1", headers=headers).json()
    assert [each["event"]["id"] for each in answer["events"]] == ["event-two"] and answer["more"]


def test_a_node_that_does_not_answer_is_said_so(waiting, browsers, nodes):
    nodes["n1"].kill()
    page = browsers["operator"].get("/queues/alert/waiting/?node=n1")
    assert page.status_code == 503 and "is not responding" in page.content.decode()
