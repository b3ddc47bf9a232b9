"""What is in a dead letter is for who may peek into its queue; that somebody saw it stands in the audit."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from console.accounts.access import create_token
from console.models import AuditEntry, QueueLimit
from queues.events.block import BlockIds, cut, from_events
from queues.models import Queue
from queues.segments.segment import Segment

pytestmark = pytest.mark.django_db
PERSON = "ada@example.org"


@pytest.fixture
def letters(poisoned, stored_snapshot):
    """Addresses of two letters of queue alert on n1: events about a person, and bytes that can't be read."""
    client = poisoned["n1"].client()
    segment = Segment(client, "alert")
    event = {"id": PERSON, "type": PERSON, "key": PERSON, "attributes": f'{{"who": "{PERSON}"}}'}
    segment.publish(cut(from_events([event], now_us=1_000_000), BlockIds()))
    (claimed,) = segment.claim("a worker", 10, 60)
    segment.move_to_dead_letters(claimed, "a worker", [(claimed.block().build_explicit_batch(), "no such customer")])
    browser = Client()
    found = [letter for letter in _listed(browser, "administrator") if letter["node"] == "n1"]
    return [f"alert/n1/{letter['id']}" for letter in found]


def _listed(browser, name):
    browser.force_login(User.objects.get(username=name))
    return browser.get("/api/v1/dead-letters").json()["letters"]


@pytest.fixture
def limited(people, browsers):
    """An operator of another queue."""
    Queue.objects.create(name="orders", kind="jobs")
    QueueLimit.objects.create(user=people["operator"], queues=["orders"])
    return browsers["operator"]


def addresses(letters):
    lists = ["/api/v1/dead-letters", "/dead-letters/", "/queues/alert/"]
    one = [f"{api}dead-letters/{letter}" for letter in letters for api in ("/api/v1/", "/")]
    return [*lists, *(each if each.startswith("/api/") else f"{each}/" for each in one)]


@pytest.fixture(params=["viewer", "limited"])
def outsider(request, people, browsers, letters):
    return browsers["viewer"] if request.param == "viewer" else request.getfixturevalue("limited")


def test_who_may_not_peek_sees_that_a_letter_is_there_and_nothing_of_it(outsider, letters):
    before = AuditEntry.objects.filter(action="queue.peek").count()
    for address in addresses(letters):
        answer = outsider.get(address)
        assert answer.status_code == 200, address
        assert PERSON not in answer.content.decode(), address
    assert AuditEntry.objects.filter(action="queue.peek").count() == before
    page = outsider.get(f"/dead-letters/{letters[0]}/").content.decode()
    assert "Viewing the event requires the operator role for this queue." in page and "no such customer" in page
    (row,) = outsider.get("/api/v1/dead-letters?error=customer").json()["letters"]
    assert (row["sealed"], row["events"], row["event_count"]) == (True, [], 1)
    assert outsider.get(f"/api/v1/dead-letters?type={PERSON}").json()["count"] == 0  # nor by asking for it


def test_who_may_not_peek_downloads_no_bytes(outsider, letters):
    for address in (f"/api/v1/dead-letters/{letters[0]}/bytes", f"/dead-letters/{letters[0]}/bytes"):
        assert outsider.get(address).status_code == 403


@pytest.mark.parametrize("address", ["/api/v1/dead-letters/{}", "/dead-letters/{}/", "/dead-letters/{}/bytes"])
def test_who_may_peek_sees_it_and_that_stands_in_the_audit(address, browsers, people, letters):
    before = AuditEntry.objects.filter(actor="operator").count()
    answer = browsers["operator"].get(address.format(letters[0]))
    assert answer.status_code == 200 and PERSON.encode() in answer.content
    noted = AuditEntry.objects.filter(actor="operator", action="queue.peek")
    assert noted.count() == before + 1 and noted.latest("id").target == "alert/n1"


def test_a_list_with_its_events_stands_in_the_audit_once_a_place(browsers, letters):
    browsers["operator"].get("/api/v1/dead-letters")
    noted = AuditEntry.objects.filter(actor="operator", action="queue.peek")
    assert sorted(noted.values_list("target", flat=True)) == ["alert/n1", "alert/n2"]


def test_a_token_that_may_only_mend_reads_nothing_by_it(people, letters):
    now = timezone.now()
    scope = {"actions": ["dead_letters", "plant.view"]}
    secret = create_token(people["operator"], "t", "operator", now + timedelta(days=1), **scope)[1]
    headers = {"Authorization": f"Bearer {secret}"}
    row = Client().get(f"/api/v1/dead-letters/{letters[0]}", headers=headers).json()
    assert row["sealed"]
    body = {"digest": row["name"].rpartition("/")[2], "event": {"value": 3}, "reason": "a test"}
    address = f"/api/v1/dead-letters/{letters[0]}/fix"
    answer = Client().post(address, body, content_type="application/json", headers=headers)
    assert answer.status_code == 200 and PERSON not in answer.content.decode()
