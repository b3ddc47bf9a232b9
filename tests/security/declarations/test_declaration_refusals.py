"""A declaration that reaches for files, classes or time is answered with 422 and noted in the audit."""

import pytest
from django.urls import reverse

from console.models import AuditEntry
from queues.models import Queue
from workers.models import PipelineVersion

pytestmark = pytest.mark.django_db

HEAD = (
    "name: app\nqueues: [telemetry]\nsink: alert\nkey: source\npatterns: [{name: a, pattern: A, within_seconds: 1}]\n"
)
ENRICH = "rules: [{name: r, enrich: {table: %s, using: source, by: subnet, columns: [x]}}]\n"
KEEP = 'rules: [{name: r, keep: "%s"}]\n'
REACHING = {
    "file": (HEAD + ENRICH % "/etc/passwd", "rules[0].enrich.table"),
    "class": (HEAD + KEEP % "java_method('java.lang.System', 'exit', 0) = 1", "rules[0].keep"),
    "subquery": (HEAD + KEEP % "exists (select 1 from text.`/etc/passwd`)", "rules[0].keep"),
    "bomb": (HEAD.replace("pattern: A", "pattern: 'SEQ(SEQ(A{1000}){1000})'"), "patterns[0].pattern"),
    "deep": (HEAD + "types: " + "[" * 2_000, "types" + "[0]" * 31),
}


@pytest.fixture
def queues(control):
    for name, kind in (("telemetry", "pipeline"), ("alert", "jobs")):
        Queue.objects.create(name=name, kind=kind)


def refusals() -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(action="refused.pipeline.declare").order_by("id"))


@pytest.mark.parametrize("kind", REACHING)
def test_the_page_answers_422_and_the_audit_says_who_reached_for_what(kind, browsers, queues):
    text, field = REACHING[kind]
    answer = browsers["operator"].post(
        _address(), {"text": text, "reason": "x"}, headers={"accept": "application/json"}
    )
    assert answer.status_code == 422
    said = answer.content.decode()
    assert field in said and "root:" not in said
    (entry,) = refusals()
    assert (entry.actor, entry.target) == ("operator", field)
    assert entry.reason and "root:" not in entry.reason
    assert not PipelineVersion.objects.exists()


def _address() -> str:
    return reverse("pipeline-declare", args=["new"])


def test_the_api_answers_422_and_notes_the_token(client, secrets, queues):
    text, field = REACHING["file"]
    answer = client.post(
        "/api/v1/applications",
        {"text": text, "reason": "x"},
        content_type="application/json",
        headers={"authorization": f"Bearer {secrets['operator']}"},
    )
    assert answer.status_code == 422
    assert field in answer.content.decode()
    assert [entry.actor for entry in refusals()] == ["token:of-operator"]


def test_a_slip_of_the_pen_is_refused_but_not_noted(browsers, queues):
    for wrong in (HEAD + KEEP % "valu > 1", HEAD + KEEP % "value >", HEAD + "types: [A"):
        sent = {"text": wrong, "reason": "x"}
        answer = browsers["operator"].post(_address(), sent, headers={"accept": "application/json"})
        assert answer.status_code == 422
    assert refusals() == []
