"""An old run of ticks that did nothing, on its pages and over the API: one entry, and each of its ticks."""

import csv
import io
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from workers.control.ledger import folds
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def viewer(browsers, stored_snapshot) -> Client:
    return browsers["viewer"]


@pytest.fixture
def folded(db) -> list[int]:
    """The ids of ten ticks, of which nine are folded into the last."""
    loop = Loop.objects.create(name="ladder/alert", law="ladder", target={"queue": "alert"})
    ticks = [
        LedgerEntry(loop=loop, at=NOON + timedelta(seconds=5 * number), reason=f"calm {number}") for number in range(10)
    ]
    for each in ticks:
        each.mode, each.parameters = "auto", {}
        each.save()
    assert sum(folds.fold(loop, NOON - HOUR, NOON + HOUR, nullcontext)) == 9
    return [each.pk for each in ticks]


def test_the_list_shows_one_line_and_how_many_it_stands_for(viewer, folded):
    page = " ".join(viewer.get("/ledger/?each=1").content.decode().split())
    assert page.count("calm ") == 1 and "calm 9" in page
    assert "Same as 9 previous ticks since" in page
    run = " ".join(viewer.get("/ledger/").content.decode().split())
    assert "No action \u00d7 10" in run


def test_the_page_of_each_is_there_and_of_one_that_never_was_is_not(viewer, folded):
    for number, pk in enumerate(folded):
        page = viewer.get(f"/ledger/{pk}/")
        assert page.status_code == 200 and f"calm {number}" in page.content.decode()
        assert viewer.get(f"/api/v1/ledger/{pk}").json()["reason"] == f"calm {number}"
        assert viewer.get(f"/api/v1/ledger/{pk}/replay").status_code == 200
    assert viewer.get(f"/ledger/{folded[0] - 1}/").status_code == 404
    for beyond in (folded[-1] + 1, 2**62, 10**30):
        assert viewer.get(f"/ledger/{beyond}/").status_code == 404
        assert viewer.get(f"/api/v1/ledger/{beyond}").status_code in (404, 422)


def test_the_api_lists_the_last_with_how_many_and_an_export_has_each(viewer, folded):
    (row,) = viewer.get("/api/v1/ledger").json()["entries"]
    assert (row["id"], row["folded_ticks"]) == (folded[-1], 9)
    assert datetime.fromisoformat(row["folded_since"]) == NOON
    answer = viewer.get("/api/v1/ledger/export?format=csv")
    rows = list(csv.DictReader(io.StringIO(answer.getvalue().decode())))
    assert [int(each["id"]) for each in rows] == folded[::-1]
    assert [each["reason"] for each in rows] == [f"calm {number}" for number in reversed(range(10))]
