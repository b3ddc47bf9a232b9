"""What is refused to somebody who is known stands in the audit, whatever was rolled back; no floods."""

import asyncio

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from console.accounts import authentication
from console.accounts.access import NOBODY, Actor, require_permission
from console.audit import audit_log
from console.audit import refusals as refused
from console.audit.refusals import MAX_A_MINUTE
from console.models import AuditEntry
from tests.console.hanging_up import HangingUp

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def monotonic(monkeypatch):
    """What time it is for the folding: the test sets it."""
    now = [0.0]
    monkeypatch.setattr(refused, "fold", refused.Fold(lambda: now[0]))
    return now


def refusals():
    return list(AuditEntry.objects.filter(action__startswith="refused.").order_by("id"))


def test_a_page_that_a_person_may_not_see_is_noted(browsers, control):
    assert browsers["viewer"].get("/audit/").status_code == 403
    (entry,) = refusals()
    assert (entry.actor, entry.action, entry.target) == ("viewer", "refused.audit.view", "GET /audit/")
    assert "requires the role administrator" in entry.reason and entry.address == "127.0.0.1"
    assert entry.request_id


def test_a_token_that_may_not_is_noted(secrets, control, client):
    token = {"HTTP_AUTHORIZATION": f"Bearer {secrets['viewer']}"}
    body = {"loop": 1, "name": "upper_limit", "value": 1, "reason": "x", "minutes": 1}
    answer = client.post("/api/v1/overrides", body, content_type="application/json", **token)
    assert answer.status_code == 403
    (entry,) = refusals()
    assert (entry.actor, entry.action) == ("token:of-viewer", "refused.override.set")
    assert entry.target == "POST /api/v1/overrides" and entry.request_id == answer["X-Request-ID"]


def test_strangers_who_are_not_known_do_not_write_into_it(client, control):
    client.get("/audit/")
    client.get("/api/v1/audit")
    with pytest.raises(PermissionDenied):
        require_permission(NOBODY, "audit.view")
    assert refusals() == []


@pytest.mark.django_db(transaction=True)
def test_the_entry_stays_when_the_refused_request_is_rolled_back():
    actor = Actor("desk-2", "operator")
    with refused.collect_refusals("POST /pipeline/p/declare"), pytest.raises(ValueError), transaction.atomic():
        audit_log.record_refusal(actor, "pipeline.declare", reason="tables are named without folders")
        raise ValueError
    assert [entry.target for entry in refusals()] == ["POST /pipeline/p/declare"]


def test_under_asgi_too():
    async def view(request):
        audit_log.record_refusal(Actor("desk-2", "operator"), "plant.register", "east", "a loopback address")
        return HttpResponse(status=422)

    request = HttpRequest()
    request.method, request.path = "POST", "/plants/register"
    handler = refused.refusals_recorded(view)
    written = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refused, "_write", lambda refusal, asked: written.append(refusal))
        asyncio.run(handler(request))
    assert [(each.action, each.target) for each in written] == [("plant.register", "east")]


@pytest.mark.django_db(transaction=True)
def test_who_hangs_up_before_the_refusal_is_noted_all_the_same(application, secrets, control, monkeypatch):
    sent = HangingUp("/api/v1/audit", method="GET", authorization=f"Bearer {secrets['viewer']}")
    real = authentication.authenticate_token

    def cut_off(*args):
        sent.hang_up()
        return real(*args)

    monkeypatch.setattr(authentication, "authenticate_token", cut_off)
    async_to_sync(sent.to)(application)
    (entry,) = refusals()
    assert (entry.actor, entry.action, entry.target) == ("token:of-viewer", "refused.audit.view", "GET /api/v1/audit")


def test_equal_refusals_are_one_entry_a_minute_and_counted_in_the_next(monotonic):
    actor = Actor("desk-2", "operator")
    for _ in range(500):
        audit_log.record_refusal(actor, "plant.register", "east", "a loopback address")
    assert len(refusals()) == 1
    monotonic[0] = 61.0
    audit_log.record_refusal(actor, "plant.register", "east", "a loopback address")
    assert [entry.after for entry in refusals()] == [None, {"refused_before_and_not_noted": 499, "about": None}]


def test_different_refusals_are_bounded_by_actor(monotonic):
    for number in range(500):
        audit_log.record_refusal(Actor("desk-2", "operator"), "plant.register", f"plant-{number}", "no")
    audit_log.record_refusal(Actor("desk-3", "operator"), "plant.register", "east", "no")
    actors = [entry.actor for entry in refusals()]
    assert actors == ["desk-2"] * MAX_A_MINUTE + ["desk-3"]


@pytest.mark.parametrize("odd", ["\x00", "\ud800", "a\nb", "x" * 5_000])
def test_no_text_keeps_a_refusal_out(odd):
    audit_log.record_refusal(Actor("desk-2", "operator"), "plant.register", odd, odd)
    (entry,) = refusals()
    assert entry.target.isprintable() and len(entry.target) <= 200


def test_a_command_in_this_process_is_noted_too(people, capsys):
    from console.api.request.calls import call_view as call
    from console.management.commands.weir import find_acting_user

    status, _ = call("GET", "/api/v1/audit", b"", find_acting_user("viewer"))
    assert status == 403
    (entry,) = refusals()
    assert (entry.actor, entry.target) == ("manage.py:viewer", "GET /api/v1/audit")
