"""Waiting events on a page and by the API: for operators, audited, and as text."""

import pytest

from console.embedded.seeding import seed
from console.models import AuditEntry
from queues.events.block import BlockIds, cut, from_events
from queues.segments.segment import Segment

pytestmark = pytest.mark.django_db


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
