"""CloudEvents as delivery tools send them, and what other systems post to the same address."""

import orjson
import pytest
from django.test import Client

from console.models import Mark

pytestmark = pytest.mark.django_db
STRUCTURED = "application/cloudevents+json"
EVENT = {
    "specversion": "1.0",
    "id": "run-7",
    "source": "/ci/shop",
    "type": "dev.cdevents.service.deployed.0.1.0",
    "time": "2026-11-20T03:12:00Z",
    "data": {"title": "shop 4.2"},
}


@pytest.fixture
def post(secrets):
    def send(body, content_type=STRUCTURED, **headers):
        named = {"authorization": f"Bearer {secrets['operator']}", **headers}
        return Client().post("/api/v1/changes", body, content_type, headers=named)

    return send


@pytest.mark.parametrize(
    ("change", "content_type"),
    [
        ({}, f"{STRUCTURED}; charset=UTF-8"),
        ({}, "application/json"),
        ({"time": "2026-11-20T03:12:00.123456789Z"}, STRUCTURED),
        ({"time": "2026-11-20T05:12:00+0200"}, STRUCTURED),
        ({"data": None}, STRUCTURED),
        ({"data": None, "data_base64": "eyJ0aXRsZSI6IngifQ=="}, STRUCTURED),
        ({"type": "com.example.service.rolledback.v1"}, STRUCTURED),
        ({"datacontenttype": "text/plain", "dataschema": "urn:x", "traceparent": "00-a-b-01"}, STRUCTURED),
    ],
)
def test_an_event_in_any_usual_form_is_a_mark(post, change, content_type):
    answer = post(orjson.dumps({**EVENT, **change}), content_type)
    assert answer.status_code == 201, answer.content
    assert Mark.objects.get().at.minute == 12


@pytest.mark.parametrize(
    "change",
    [
        {"type": "com.example.webhook.ping"},
        {"type": "com.example.Heartbeat.v1"},
        {"type": "dev.cdevents.testsuiterun.finished.0.2.0"},
        {"type": "dev.cdevents.pipelinerun.started.0.2.0", "data": None},
        {"data": [1]},
        {"data": "shop 4.2"},
        {"data": False},
    ],
)
def test_a_valid_event_of_something_else_is_ignored_with_the_reason(post, change):
    for _ in range(24):
        answer = post(orjson.dumps({**EVENT, **change}))
        assert answer.status_code == 202 and list(answer.json()) == ["ignored"], answer.content
    assert not Mark.objects.exists() and post(orjson.dumps(EVENT)).status_code == 201


@pytest.mark.parametrize("body", [b"", b"null", b"[1]", b"7"])
def test_a_structured_body_that_is_no_object_is_refused(post, body):
    assert "body" in post(body).json()["errors"]


@pytest.mark.parametrize("ping", [{"object_kind": "push"}, {"hook_id": 1}, {}])
def test_what_is_no_event_names_what_is_missing_and_is_no_failed_login(post, ping, control):
    """A Git host's ping has no place here; a right token stays right however often it is sent."""
    for _ in range(24):
        answer = post(orjson.dumps(ping), "application/json")
        assert answer.status_code == 422
        assert "specversion" in answer.json()["errors"]
    assert post(orjson.dumps(EVENT)).status_code == 201
