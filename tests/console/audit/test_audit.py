"""The audit: who changed what; read by administrators, changed by nobody."""

import csv
import io
import os
from datetime import UTC, datetime

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from console.accounts.access import Actor
from console.audit import audit_log, chain, witness
from console.audit.chain import get_entry_content, is_genuine
from console.audit.check import AuditWatch, Checker
from console.models import AuditEntry
from workers.models import Loop

pytestmark = pytest.mark.django_db


def note(actor, action="override.set", **more):
    who = Actor(actor, "operator", address="192.0.2.7", request_id=more.pop("request_id", ""))
    return audit_log.record(who, action, "worker_rate/alert/n1", **more)


def test_the_newest_stands_first_page_by_page(browsers, control):
    entries = [note("desk-2") for _ in range(51)]
    page = browsers["administrator"].get("/audit/").context["listed"]
    assert page.rows[0].pk == entries[-1].pk
    assert (len(page.rows), page.older) == (50, entries[1].pk)


FILTERS = {
    "": 4,
    "actor=desk-2": 3,
    "action=loop.mode": 1,
    "action=override": 2,
    "actor=desk-2&action=x": 0,
    "target=worker_rate/alert/n1": 4,
    "text=BURST": 1,
    "address=192.0.2.7": 4,
    "address=192.0.2.8": 0,
    "request=request-0001": 1,
    "from=2031-01-01T00:00:00": 0,
    "to=2031-01-01T00:00:00": 4,
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("query", FILTERS)
def test_page_api_and_export_choose_the_same_changes(query, browsers, control):
    note("desk-2", reason="a burst")
    note("desk-2", "loop.mode")
    note("desk-3")
    note("desk-2", "overridden.by", request_id="request-0001")
    browser = browsers["administrator"]
    context = browser.get(f"/audit/?{query}").context
    shown = [each.pk for each in context["listed"].rows]
    assert (len(shown), context["counted"]) == (FILTERS[query], FILTERS[query])
    assert shown == [each["id"] for each in browser.get(f"/api/v1/audit?{query}").json()["entries"]]
    table = browser.get(f"/api/v1/audit/export?{query}").getvalue().decode()
    assert [int(row["id"]) for row in csv.DictReader(io.StringIO(table))] == shown


@pytest.mark.parametrize("query", ["from=soon", "address=mode", "address=192.0.2.7/24", "address=fe80::1%25eth0"])
def test_a_filter_that_can_not_be_read_is_refused_at_its_field(query, browsers, control):
    browser, field = browsers["administrator"], query.partition("=")[0]
    assert list(browser.get(f"/audit/?{query}").context["errors"]) == [field]
    assert list(browser.get(f"/api/v1/audit?{query}").json()["errors"]) == [field]


CHANGES = ("UPDATE console_auditentry SET actor = 'x'", "DELETE FROM console_auditentry")


@pytest.mark.parametrize("change", CHANGES)
def test_the_database_itself_refuses_to_change_what_is_written(change):
    entry = note("desk-2")
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        connection.cursor().execute(change)
    entry.actor = "somebody else"
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        entry.save()
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        entry.delete()
    assert AuditEntry.objects.get().actor == "desk-2"


def test_a_change_is_noted_with_the_request_that_made_it(browsers, control):
    browser = browsers["operator"]
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate")
    posted = {"mode": "advise", "reason": "a test"}
    answer = browser.post(f"/loops/{loop.pk}/mode", posted, headers={"X-Request-ID": "from-the-client-7"})
    assert answer["X-Request-ID"] == AuditEntry.objects.get().request_id != "from-the-client-7"
    answer = browser.post(f"/api/v1/loops/{loop.pk}/mode", posted, content_type="application/json")
    assert answer["X-Request-ID"] == AuditEntry.objects.latest("id").request_id


def test_a_target_longer_than_a_row_takes_is_noted_by_its_beginning():
    queues = ", ".join(f"orders-of-shop-{number}" for number in range(40))
    entry = audit_log.record(Actor("desk-2", "operator"), "dead_letters.requeue", queues)
    entry.refresh_from_db()
    assert entry.target.startswith("orders-of-shop-0, ") and entry.target.endswith("…")
    assert len(entry.target) == AuditEntry._meta.get_field("target").max_length


def test_what_failed_is_noted_also_where_another_service_says_why_with_a_nul():
    with pytest.raises(RuntimeError), audit_log.record_attempt(Actor("desk-2", "operator"), "plant.order", "shop"):
        raise RuntimeError("shop answers 400: a\0b")
    failed = AuditEntry.objects.get(action="failed.plant.order")
    assert failed.after == {"error": "shop answers 400: a\ufffdb"}


# 10**23 and 2**53 + 2: what PostgreSQL gives back of a whole number that was written as a float.
LARGE = {"criterion": 1e23, "stamp": [1.7600000001234568e18, -(2.0**53) - 2], "count": 2**70 + 1, "half": 0.5}
GIVEN_BACK = {**LARGE, "criterion": 10**23, "stamp": [1760000000123456800, -(2**53) - 2]}


@pytest.mark.parametrize("read", [LARGE, GIVEN_BACK])
def test_a_large_number_is_no_alteration_whatever_the_database_makes_of_it(read):
    entry = AuditEntry.objects.get(pk=note("desk-2", before=LARGE, after=LARGE).pk)
    place = entry.sequence, entry.previous, entry.digest
    assert is_genuine(get_entry_content(entry), *place)
    assert is_genuine({**get_entry_content(entry), "before": read, "after": read}, *place)
    for other in ({**read, "count": 2**70 + 2}, {**read, "criterion": 10**23 + 1}, {**read, "half": 1}):
        assert not is_genuine({**get_entry_content(entry), "after": other}, *place)


def test_what_somebody_did_is_on_the_disk_before_the_control_server_knows_of_it(
    monkeypatch, django_capture_on_commit_callbacks
):
    steps = []
    monkeypatch.setattr(chain, "put_on_disk", lambda path: steps.append((path.name[-4:], path.exists())))
    monkeypatch.setattr(witness, "send_head", lambda *_: steps.append("sent"))
    with django_capture_on_commit_callbacks(execute=True):
        note("desk-2")
    assert steps == ([("-wal", True)] if connection.vendor == "sqlite" else []) + ["sent"]


def test_a_forged_head_is_found_also_after_another_was_accepted(control, settings, tmp_path):
    settings.WEIR_DATA = tmp_path
    note("desk-2")
    for statement in ("half a li", "somebody else's"):
        (tmp_path / witness.FILE).write_text(f"{statement}\n")
        assert [each.kind for each in Checker(tmp_path).step().findings] == ["forged"]
        call_command("audit", "accept", "--reason", "a full disk", stdout=io.StringIO())


def test_who_runs_under_a_number_without_a_name_accepts_findings_too(control, settings, tmp_path, monkeypatch):
    """As in a container of a cluster that gives each its own number."""
    settings.WEIR_DATA = tmp_path
    note("desk-2")
    (tmp_path / witness.FILE).write_text("half a li\n")
    monkeypatch.setattr(os, "getuid", lambda: 1_000_700_000)
    call_command("audit", "accept", "--reason", "a full disk", stdout=io.StringIO())
    assert AuditEntry.objects.latest("sequence").actor == "manage.py:1000700000"


def test_what_somebody_does_while_the_audit_is_checked_is_no_insertion(control, tmp_path):
    note("desk-2")
    done_meanwhile = iter([lambda: None, lambda: note("desk-3")])

    def monotonic():
        next(done_meanwhile, lambda: None)()
        return 0.0

    verdict = Checker(tmp_path, 5.0, monotonic).step()
    assert AuditEntry.objects.count() == 2 and list(verdict.findings) == []


def test_a_head_that_a_full_disk_cut_short_is_no_forgery(control, tmp_path):
    watch, now, kept = AuditWatch(tmp_path), datetime.now(UTC), tmp_path / witness.FILE
    note("desk-2")
    watch.step(now)
    whole = kept.read_text()
    kept.write_text(whole + whole[:40])
    note("desk-3")
    assert watch.step(now).sound and watch.step(now).sound
    assert [head.sequence for head in witness.read_disk_heads(tmp_path)] == [1, 2]
