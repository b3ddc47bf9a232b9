"""Filters that people keep: each person's own, the address is the filter."""

import pytest

from console.actions import saved_filters
from console.models import AuditEntry, SavedFilter

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("stored_snapshot")]
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
