"""Changes that other systems report as CloudEvents: structured or binary, once, bounded, by who may."""

import pytest
from django.test import Client
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from console.actions import marks
from console.api.ingestion import cloud_event
from console.api.ingestion.cloud_event import EventIgnored, read_outside_change
from console.models import AuditEntry, Mark
from queues.models import Queue

pytestmark = pytest.mark.django_db
EVENT = {
    "specversion": "1.0", "id": "b1-17", "source": "https://ci.example/weir",
    "type": "dev.cdevents.service.deployed.0.1.0", "time": "2026-11-20T03:12:00Z", "subject": "queue/alert",
    "datacontenttype": "application/json",
    "data": {"title": "alert handler 4.2", "url": "https://ci.example/b/17", "text": "a new model"},
}  # fmt: skip
STRUCTURED = "application/cloudevents+json"
NOW = timezone.now()


@pytest.fixture(autouse=True)
def _queue(db):
    Queue.objects.create(name="alert", kind="jobs")


def send(secret, event, **headers):
    named = {"authorization": f"Bearer {secret}", **headers}
    return Client().post("/api/v1/changes", event, content_type=STRUCTURED, headers=named)


def test_a_deploy_becomes_a_mark_on_the_timeline(secrets):
    answer = send(secrets["operator"], EVENT)
    assert answer.status_code == 201, answer.content
    mark = Mark.objects.get()
    assert (mark.kind, mark.title, mark.parts) == ("deploy", "alert handler 4.2", ["queue/alert"])
    assert (mark.at.isoformat(), mark.url) == ("2026-11-20T03:12:00+00:00", "https://ci.example/b/17")
    assert AuditEntry.objects.get().action == "mark.add"


@pytest.mark.parametrize("word", ["deployed", "rollout", "roll-back", "upgraded"])
def test_a_type_that_says_one_of_the_usual_words_is_a_deploy(word):
    event = {**EVENT, "type": f"com.example.service.{word}.v1"}
    assert read_outside_change({}, event, NOW).kind == "deploy"


def test_sent_again_it_is_the_same(secrets):
    first, again = (send(secrets["operator"], EVENT) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json() and Mark.objects.count() == AuditEntry.objects.count() == 1
    assert send(secrets["operator"], {**EVENT, "source": "/another"}).status_code == 201


@pytest.mark.parametrize("body", [b"[]", b'["a"]', b"null", b"7"])
def test_a_structured_event_that_is_no_object_is_refused(body, secrets):
    headers = {"authorization": f"Bearer {secrets['operator']}"}
    answer = Client().post("/api/v1/changes", body, content_type=STRUCTURED, headers=headers)
    assert answer.status_code == 422, answer.content
    assert not Mark.objects.exists()


def test_the_binary_form_has_its_attributes_in_headers(secrets):
    headers = {f"ce-{name}": EVENT[name] for name in ("specversion", "id", "source", "type", "time")}
    answer = Client().post(
        "/api/v1/changes", {"title": "v2", "parts": ["queue/alert"]}, content_type="application/json",
        headers={"authorization": f"Bearer {secrets['operator']}", "ce-subject": "service%2Fshop", **headers},
    )  # fmt: skip
    assert answer.status_code == 201, answer.content
    mark = Mark.objects.get()
    assert (mark.title, mark.event, mark.parts) == ("v2", "b1-17", ["queue/alert"])


def test_a_type_in_other_words_is_a_change_and_named_by_it(secrets):
    event = {**EVENT, "type": "com.example.schema.migrated.v1", "data": None, "subject": "shop-db"}
    assert send(secrets["operator"], event).status_code == 201
    mark = Mark.objects.get()
    assert (mark.kind, mark.title, mark.parts) == ("change", "schema migrated shop-db", [])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"specversion": "0.3"}, "specversion"),
        ({"id": ""}, "id"),
        ({"type": "x" * 300}, "type"),
        ({"time": "soon"}, "time"),
        ({"time": "2199-01-01T00:00:00Z"}, "at"),
        ({"subject": "queue/no-such"}, "parts"),
        ({"data": {"parts": "queue/alert"}}, "parts"),
        ({"data": {"parts": ["planet/mars"]}}, "parts"),
        ({"data": {"url": "javascript:alert(1)"}}, "url"),
        ({"data": {"title": 3}}, "title"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(change, field, secrets):
    answer = send(secrets["operator"], {**EVENT, **change})
    assert answer.status_code == 422 and field in answer.json()["errors"], answer.content
    assert Mark.objects.count() == 0


@pytest.mark.parametrize("name", ["id", "source", "type"])
def test_a_name_that_is_too_long_is_refused_before_a_title_is_made_of_it(name, monkeypatch):
    """The version at the end of a type takes time with the square of its length to be found missing."""
    monkeypatch.setattr(cloud_event, "_build_title", lambda *read: pytest.fail("it was read"))
    wrong = {**EVENT, "data": None, name: "a" + ".1" * 30_000 + "x"}
    with pytest.raises(BadInput, match="must have 1 to") as refused:
        read_outside_change({}, wrong, NOW)
    assert refused.value.field == name


def test_a_pipeline_that_runs_wild_fills_no_table(secrets, monkeypatch):
    monkeypatch.setattr(marks, "MAX_AN_HOUR", 2)
    answers = [send(secrets["operator"], {**EVENT, "id": str(at)}).status_code for at in range(3)]
    assert answers == [201, 201, 429] and Mark.objects.count() == 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*EVENT, "other"]), json_values))
def test_any_document_is_read_or_refused_by_name(document):
    try:
        found = read_outside_change({}, document, NOW)
    except EventIgnored as error:
        assert error.reason
    except BadInput as error:
        assert error.field
    else:
        assert found.source and found.event and 0 < len(found.title) <= marks.MAX_TITLE
