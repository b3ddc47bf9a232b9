"""Queues that administrators make and change: checked, shown as a difference, audited, projected."""

import pytest
from django.utils.html import escape

from console.actions.queues.definitions import find_version_before, is_restorable
from console.embedded.seeding import seed
from console.models import AuditEntry
from queues import keys
from queues.durability import DURABILITIES
from queues.models import Node, Queue
from queues.topology import Topology
from tests.console.page_form import fetch

pytestmark = pytest.mark.django_db
REASON = {"reason": "mail is to be sent"}


@pytest.fixture(autouse=True)
def plant(control):
    seed(control, {"WEIR_NODES": "n1=redis://127.0.0.1:1/0 n2=redis://127.0.0.1:1/1"})


def projected(control):
    return Topology.from_json(control.get(keys.TOPOLOGY))


def shown(browser, name="alert"):
    """What the form of a queue holds."""
    answer = browser.get(f"/api/v1/queues/{name}/definition").json()
    return {"digest": answer["digest"], **REASON}


def test_a_queue_is_made_with_equal_points_and_is_there_for_producers(administrator, control):
    given = {"name": "mail", "kind": "jobs", "handler": "noop", "handler_options": "{}", "tries": "3", **REASON}
    answer = fetch(administrator, "/queues/create", given)
    assert answer.status_code == 200, answer.content
    queue = projected(control).queue("mail")
    assert (queue.points, queue.handler, queue.tries) == ({"n1": 500, "n2": 500}, "noop", 3)
    noted = AuditEntry.objects.get(action="queue.create")
    assert (noted.actor, noted.target, noted.reason) == ("administrator", "mail", REASON["reason"])


def test_a_queue_of_the_pipeline_has_no_handler(administrator, control):
    answer = fetch(administrator, "/queues/create", {"name": "logs", "kind": "pipeline", **REASON})
    assert answer.status_code == 200 and projected(control).queue("logs").handler == ""
    given = {"name": "more", "kind": "pipeline", "handler": "sql", **REASON}
    answer = fetch(administrator, "/queues/create", given)
    assert answer.status_code == 422 and "handler" in answer.json()["errors"]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "wrong, field",
    [
        ({"name": "Mail!"}, "name"),
        ({"name": "alert"}, "name"),
        ({"kind": "other"}, "kind"),
        ({"handler": "nothing"}, "handler"),
        ({"handler_options": '{"unknown": 1}'}, "handler_options.unknown"),
        ({"handler_options": "[]"}, "handler_options"),
        ({"priority": "11"}, "priority"),
        ({"handler_timeout_seconds": "0"}, "handler_timeout_seconds"),
        ({"minimum_containers": "5"}, "points"),
        ({"requirements": "gpu Zone-A!"}, "requirements"),
        ({"kind": "pipeline", "handler": "", "requirements": "gpu"}, "requirements"),
    ],
)
def test_what_the_topology_would_refuse_is_refused_by_its_field_and_nothing_is_made(
    administrator, control, wrong, field
):
    before = control.get(keys.TOPOLOGY)
    given = {"name": "mail", "kind": "jobs", "handler": "noop", **REASON, **wrong}
    answer = fetch(administrator, "/queues/create", given)
    assert answer.status_code == 422, answer.content
    assert list(answer.json()["errors"]) == [field]
    assert not Queue.objects.filter(name="mail").exists() and control.get(keys.TOPOLOGY) == before


def test_a_change_says_its_difference_first_and_then_does_that(administrator, control):
    given = {"tries": "7", "priority": "3", **shown(administrator)}
    answer = fetch(administrator, "/queues/alert/definition/preview", given).json()
    assert [row["title"] for row in answer["rows"]] == ["tries: 5 → 7"]
    assert projected(control).queue("alert").tries == 5
    answer = fetch(administrator, "/queues/alert/change", given)
    assert answer.status_code == 200, answer.content
    assert projected(control).queue("alert").tries == 7
    noted = AuditEntry.objects.get(action="queue.change")
    assert (noted.before, noted.after) == ({"tries": 5}, {"tries": 7})


def test_a_queue_can_require_capabilities_of_hosts_and_an_empty_field_removes_them(administrator, control):
    answer = fetch(administrator, "/queues/alert/change", {"requirements": "gpu zone-a gpu", **shown(administrator)})
    assert answer.status_code == 200, answer.content
    assert projected(control).queue("alert").requirements == ("gpu", "zone-a")
    assert 'value="gpu zone-a"' in administrator.get("/queues/alert/definition/").content.decode()
    answer = fetch(administrator, "/queues/alert/change", {"requirements": "", **shown(administrator)})
    assert answer.status_code == 200, answer.content
    assert projected(control).queue("alert").requirements == ()


def test_who_changes_what_another_has_changed_meanwhile_is_refused(administrator, control):
    given = shown(administrator)
    assert fetch(administrator, "/queues/alert/change", {"tries": "7", **given}).status_code == 200
    answer = fetch(administrator, "/queues/alert/change", {"tries": "8", **given})
    assert answer.status_code == 422 and list(answer.json()["errors"]) == ["digest"]
    assert projected(control).queue("alert").tries == 7


def test_the_api_makes_and_changes_too(administrator, control):
    body = {"kind": "jobs", "handler": "noop", "points": {"n1": 300, "n2": 700}, **REASON}
    made = administrator.post("/api/v1/queues/mail/create", body, content_type="application/json")
    assert made.status_code == 201, made.content
    assert projected(control).queue("mail").points == {"n1": 300, "n2": 700}
    body = {"tries": 9, "digest": made.json()["digest"], **REASON}
    changed = administrator.post("/api/v1/queues/mail/definition", body, content_type="application/json")
    assert changed.json() == {"queue": "mail", "before": {"tries": 5}, "after": {"tries": 9}}


def change_alert(administrator, **fields):
    answer = fetch(administrator, "/queues/alert/change", {**fields, **shown(administrator)})
    assert answer.status_code == 200, answer.content


def test_the_last_change_of_a_queue_is_rolled_back_while_it_is_the_last(administrator, control):
    change_alert(administrator, tries="7", priority="2")
    entry = find_version_before(Queue.objects.get(name="alert"))
    before = entry.before
    assert fetch(administrator, "/queues/alert/roll-back", {"entry": "0", **REASON}).status_code == 422
    answer = fetch(administrator, "/queues/alert/roll-back", {"entry": str(entry.pk), **REASON})
    assert answer.status_code == 200, answer.content
    queue = projected(control).queue("alert")
    assert (queue.tries, queue.priority) == (before["tries"], before["priority"])
    again = fetch(administrator, "/queues/alert/roll-back", {"entry": str(entry.pk), **REASON})
    assert again.status_code == 422 and "entry" in again.json()["errors"]


def test_a_change_that_the_log_hides_or_that_was_changed_elsewhere_is_not_rolled_back(administrator):
    queue = Queue.objects.get(name="alert")
    assert find_version_before(queue) is None
    change_alert(administrator, tries="7")
    Queue.objects.filter(name="alert").update(tries=9)
    assert find_version_before(Queue.objects.get(name="alert")) is None
    Queue.objects.filter(name="alert").update(tries=7)
    entry = find_version_before(Queue.objects.get(name="alert"))
    entry.before = {"handler_options": {"url": "https://shop.example"}}
    assert not is_restorable(entry.before)


def test_the_durability_of_a_queue_is_changed_like_its_other_settings(administrator, control):
    change_alert(administrator, durability="disk")
    assert projected(control).queue("alert").durability == "disk"
    noted = AuditEntry.objects.filter(action="queue.change").latest("pk")
    assert (noted.before, noted.after) == ({"durability": "memory"}, {"durability": "disk"})
    page = administrator.get("/queues/alert/").content.decode()
    assert "Durability disk" in page and escape(DURABILITIES["disk"].promise) in page
    form = administrator.get("/queues/alert/definition/").content.decode()
    assert all(
        escape(durability.promise) in form and escape(durability.price) in form for durability in DURABILITIES.values()
    )


def test_a_durability_that_does_not_exist_is_rejected(administrator, control):
    answer = fetch(administrator, "/queues/alert/change", {"durability": "tape", **shown(administrator)})
    assert answer.status_code == 422 and "durability" in answer.json()["errors"]


def test_a_node_without_an_append_only_file_takes_no_durable_queue(administrator, control, nodes):
    client = nodes["n1"].client()
    Node.objects.filter(name="n1").update(url=nodes["n1"].url)
    client.config_set("appendonly", "no")
    try:
        answer = fetch(administrator, "/queues/alert/change", {"durability": "disk", **shown(administrator)})
        assert answer.status_code == 422 and "node n1" in answer.json()["errors"]["durability"][0]
        body = {"kind": "jobs", "handler": "noop", "durability": "disk", **REASON}
        made = administrator.post("/api/v1/queues/mail/create", body, content_type="application/json")
        assert made.status_code == 422 and not Queue.objects.filter(name="mail").exists()
    finally:
        client.config_set("appendonly", "yes")
    change_alert(administrator, durability="disk")
