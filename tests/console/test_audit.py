"""The audit: who changed what; read by administrators, changed by nobody."""

import pytest
from django.urls import get_resolver

from console import audit
from console.access import Actor
from console.models import AuditEntry

pytestmark = pytest.mark.django_db


def note(actor: str, action: str = "override.set", **more: object) -> AuditEntry:
    return audit.record(Actor(actor, "operator", address="192.0.2.7"), action, "worker_rate/alert/n1", **more)


def test_an_entry_says_who_what_why_and_from_where():
    entry = note("desk-2", reason="a burst", before={"upper_limit": 1000}, after={"upper_limit": 500})
    entry.refresh_from_db()
    assert (entry.actor, entry.action, entry.target) == ("desk-2", "override.set", "worker_rate/alert/n1")
    assert (entry.reason, entry.address) == ("a burst", "192.0.2.7")
    assert (entry.before, entry.after) == ({"upper_limit": 1000}, {"upper_limit": 500})


def test_the_newest_stands_first_page_by_page(browsers, control):
    entries = [note("desk-2") for _ in range(51)]
    page = browsers["administrator"].get("/audit/").context["page_obj"]
    assert page.object_list[0].pk == entries[-1].pk
    assert (len(page.object_list), page.paginator.num_pages) == (50, 2)


@pytest.mark.parametrize(
    ("query", "count"),
    [("", 3), ("?actor=desk-2", 2), ("?action=loop.mode", 1), ("?actor=desk-2&action=x", 0)],
)
def test_it_is_filtered_by_its_address(query, count, browsers, control):
    note("desk-2")
    note("desk-2", "loop.mode")
    note("desk-3")
    assert browsers["administrator"].get(f"/audit/{query}").context["page_obj"].paginator.count == count


def test_a_token_is_named_as_one(secrets, control, client):
    token = {"HTTP_AUTHORIZATION": f"Bearer {secrets['operator']}"}
    body = {"loop": 1, "name": "upper_limit", "value": 1, "reason": "x", "minutes": 1}
    client.post("/api/v1/overrides", body, content_type="application/json", **token)
    assert not AuditEntry.objects.exists()  # there is no such loop, so nothing was changed


def test_no_address_changes_the_audit():
    names = {pattern.name for pattern in get_resolver().url_patterns if getattr(pattern, "name", None)}
    assert {name for name in names if name.startswith("audit")} == {"audit"}
