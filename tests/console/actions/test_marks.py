"""Marks on the timeline and filters that people keep: authorised, audited, shown until they are removed."""

import json
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client

from common.errors import BadInput
from console.accounts.access import Actor
from console.actions import marks, saved_filters
from console.api.routes import timeline
from console.models import AuditEntry, Mark, SavedFilter

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("stored_snapshot")]


NOW = datetime(2026, 11, 20, 3, 12, tzinfo=UTC)
OPERATOR = Actor("desk-2", "operator")
MINUTE = timedelta(minutes=1)


def test_a_mark_is_an_instant_or_a_range_and_audited():
    mark = marks.add(OPERATOR, title=" agent 0.9.3 ", kind="deploy", now=NOW)
    assert (mark.title, mark.at, mark.until, mark.author) == ("agent 0.9.3", NOW, None, "desk-2")
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target, entry.after["at"]) == ("mark.add", "deploy agent 0.9.3", NOW.isoformat())


def test_the_marks_of_a_range_are_those_that_touch_it():
    deploy = marks.add(OPERATOR, title="before", kind="deploy", at=NOW - 2 * MINUTE, now=NOW)
    note = marks.add(OPERATOR, title="over it", at=NOW - 2 * MINUTE, until=NOW - MINUTE, now=NOW)
    last = marks.add(OPERATOR, title="in it", at=NOW - MINUTE, now=NOW)
    assert list(marks.list_between(NOW - 90 * timedelta(seconds=1), NOW)) == [note, last]
    assert list(marks.list_between(NOW - 3 * MINUTE, NOW - 2 * MINUTE)) == [deploy, note]
    assert list(marks.list_between(NOW, NOW + MINUTE)) == []


def test_a_new_mark_takes_the_place_of_those_that_are_over_for_400_days():
    over = {"instant": (-401, None), "range": (-500, -401), "to today": (-500, 0), "lately": (-399, None)}
    for title, (at, until) in over.items():
        mark = Mark.objects.create(
            title=title, at=NOW + timedelta(days=at), until=None if until is None else NOW + timedelta(days=until)
        )
        Mark.objects.filter(pk=mark.pk).update(created_at=mark.at)
    marks.add(OPERATOR, title="new", now=NOW)
    assert set(Mark.objects.values_list("title", flat=True)) == {"to today", "lately", "new"}


def test_a_removed_mark_is_shown_no_more_but_stays_in_the_audit():
    mark = marks.add(OPERATOR, title="wrong", now=NOW)
    for _ in range(2):
        marks.remove(OPERATOR, mark, reason="it was another node", now=NOW)
    assert not marks.list_between(NOW - MINUTE, NOW + MINUTE).exists()
    (entry,) = AuditEntry.objects.filter(action="mark.remove")
    assert (entry.reason, entry.before["title"]) == ("it was another node", "wrong")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"title": " "}, "title"),
        ({"title": "x" * 81}, "title"),
        ({"text": "x" * 2_001}, "text"),
        ({"kind": "party"}, "kind"),
        ({"at": NOW + timedelta(hours=1)}, "at"),
        ({"at": NOW, "until": NOW - MINUTE}, "until"),
    ],
)
def test_bad_input_names_its_field_and_marks_nothing(given, field):
    with pytest.raises(BadInput) as error:
        marks.add(OPERATOR, **{"title": "a deploy", "now": NOW, **given})
    assert error.value.field == field
    assert not Mark.objects.exists() and not AuditEntry.objects.exists()


def test_a_deployment_tool_marks_through_the_api(secrets):
    header = {"HTTP_AUTHORIZATION": f"Bearer {secrets['operator']}"}
    body = {"title": "rules 42", "kind": "deploy", "at": "2026-11-20T03:00:00Z"}
    made = Client().post("/api/v1/marks", body, content_type="application/json", **header)
    assert made.status_code == 201
    query = {"from": "2026-11-20T02:00:00Z", "to": "2026-11-20T04:00:00Z"}
    (found,) = Client().get("/api/v1/marks", query, **header).json()["marks"]
    assert (found["title"], found["author"]) == ("rules 42", "token:of-operator")
    wrong = {**body, "at": "2026-11-20T03:00:00"}
    refused = Client().post("/api/v1/marks", wrong, content_type="application/json", **header)
    assert (refused.status_code, list(refused.json()["errors"])) == (422, ["at"])


def test_many_marks_are_given_newest_first_page_by_page_and_each_once(secrets, monkeypatch):
    monkeypatch.setattr(timeline, "MAX_ROWS", 2)
    made = [marks.add(OPERATOR, title=f"mark {at}", at=NOW - MINUTE * (at // 2), now=NOW).pk for at in range(5)]
    header = {"HTTP_AUTHORIZATION": f"Bearer {secrets['viewer']}"}
    query = {"from": (NOW - 9 * MINUTE).isoformat(), "to": NOW.isoformat()}
    pages, following = [], {}
    while following is not None:
        answer = Client().get("/api/v1/marks", {**query, **following}, **header).json()
        pages.append([each["id"] for each in answer["marks"]])
        following = {"before": answer["next"]} if answer["next"] else None
    assert pages == [[made[0], made[1]], [made[2], made[3]], [made[4]]]
    refused = Client().get("/api/v1/marks", {**query, "before": 999_999}, **header)
    assert (refused.status_code, list(refused.json()["errors"])) == (422, ["before"])


def test_the_command_marks_a_deploy():
    out = StringIO()
    call_command("mark", "agent 0.9.3", "--at", "2026-11-20T03:00:00Z", "--json", stdout=out)
    assert json.loads(out.getvalue())["title"] == "agent 0.9.3"
    assert Mark.objects.get().kind == "deploy"


POSTED = {"page": "ledger", "name": "Harm of alert", "query": "queue=alert&verdict=harmful&before=99"}


def test_a_saved_filter_is_a_link_on_its_page_for_who_saved_it(viewer, browsers):
    answer = viewer.post("/filters/save", POSTED)
    assert answer["Location"] == "/ledger/?queue=alert&verdict=harmful", "where one read is no part of it"
    assert b"Harm of alert" in viewer.get("/ledger/").content
    assert b"Harm of alert" not in viewer.get("/loops/").content
    assert b"Harm of alert" not in browsers["operator"].get("/ledger/").content
    assert AuditEntry.objects.filter(action="filter.save").exists()


def test_one_of_the_same_name_is_replaced(viewer):
    viewer.post("/filters/save", POSTED)
    viewer.post("/filters/save", {**POSTED, "query": "law=flow"})
    assert [each.query for each in SavedFilter.objects.all()] == ["law=flow"]


@pytest.mark.parametrize(
    ("change", "field"),
    [({"name": " "}, "name"), ({"name": "x" * 61}, "name"), ({"query": "before=3"}, "query"), ({"page": "me"}, "page")],
)
def test_what_can_not_be_kept_is_refused_at_its_field_and_nothing_is(change, field, viewer):
    answer = viewer.post("/filters/save", {**POSTED, **change}, headers={"Accept": "application/json"})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert not SavedFilter.objects.exists()


def test_a_person_keeps_a_bounded_number(viewer, monkeypatch):
    monkeypatch.setattr(saved_filters, "MAX_FILTERS", 1)
    viewer.post("/filters/save", POSTED)
    answer = viewer.post("/filters/save", {**POSTED, "name": "b"}, headers={"Accept": "application/json"})
    assert "name" in answer.json()["errors"] and SavedFilter.objects.count() == 1


def test_nobody_removes_the_filter_of_another(viewer, browsers):
    viewer.post("/filters/save", POSTED)
    body = {"page": "ledger", "filter": SavedFilter.objects.get().pk}
    assert browsers["operator"].post("/filters/remove", body, headers={"Accept": "application/json"}).status_code == 422
    assert SavedFilter.objects.count() == 1
    viewer.post("/filters/remove", body)
    assert not SavedFilter.objects.exists()


@pytest.mark.parametrize("page", ["queues", "nodes", "workers", "dead-letters", "audit"])
def test_each_list_keeps_filters(administrator, stored_snapshot, page):
    posted = {"page": page, "name": "mine", "query": "sort=name&order=descending"}
    assert administrator.post("/filters/save", posted).status_code == 302
    shown = administrator.get(f"/{page}/").content.decode()
    assert '<a href="?sort=name&amp;order=descending"' in shown and ">mine</a>" in shown
