"""The ledger on its pages and over the API: filtered, read page by page, exported, folded, decided once more."""

import csv
import io
import json
import re
import tracemalloc
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from console.actions.exports import iterate_newest_first, stream_download
from console.templatetags.filters import ticks_of
from tests.console.page_form import form_of
from workers.control.ledger import folds
from workers.models import LedgerEntry, Loop

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("stored_snapshot")]


FIRST, SECOND = datetime(2026, 5, 1, 12, tzinfo=UTC), datetime(2026, 5, 2, 12, tzinfo=UTC)


def loop_of(law, **target):
    return Loop.objects.create(name="/".join((law, *target.values())), law=law, target=target)


@pytest.fixture
def loop(db):
    return loop_of("worker_rate", queue="alert", node="n1")


def entry_of(loop, **values):
    return LedgerEntry.objects.create(loop=loop, **{"mode": "auto", "parameters": {}, "reason": "calm", **values})


FILTERS = {
    "": 5,
    "loop=worker_rate/alert/n1": 3,
    "law=rebalancing": 1,
    "queue=alert": 4,
    "queue=alert&node=n1": 3,
    "verdict=effective": 1,
    "mode=hold": 1,
    "acted=1": 2,
    "acted=0": 3,
    "limited_by=guard+maximum": 1,
    "limited_by=any": 2,
    "text=BURST": 1,
    "from=2026-05-02T00:00:00": 2,
    "from=2026-05-01T00:00:00&to=2026-05-02T00:00:00&acted=1": 1,
    f"loop={'7' * 5_000}": 0,  # Python refuses to read so many digits
    "loop=²": 0,  # a digit that is no number
    "law=rebalancing&node=n1": 0,
}
WRONG = {
    "verdict=good": "verdict",
    "acted=maybe": "acted",
    "from=yesterday": "from",
    "to=2026-02-31T00:00:00": "to",
    "from=2026-05-02T00:00:00&to=2026-05-01T00:00:00": "to",
    f"text={'x' * 201}": "text",
}


@pytest.fixture
def entries(loop):
    other, plant = loop_of("worker_rate", queue="alert", node="n2"), loop_of("rebalancing")
    return [
        entry_of(loop, at=FIRST, action={"start": 1}, verdict="effective", reason="a burst came"),
        entry_of(loop, at=SECOND, action={"start": 1}, verdict="checking", limited_by="guard maximum"),
        entry_of(loop, at=FIRST, mode="hold", limited_by="upper limit"),
        entry_of(other, at=SECOND, error="the node was lost"),
        entry_of(plant, at=FIRST),
    ]


@pytest.mark.sweep(4)
@pytest.mark.parametrize("query", FILTERS)
def test_page_api_and_export_choose_the_same_entries(query, viewer, entries):
    page = viewer.get(f"/ledger/?ticks=all&{query}")
    shown = [entry.pk for entry in page.context["listed"].rows]
    assert (page.context["counted"], len(shown), page.context["errors"]) == (FILTERS[query], len(shown), {})
    over_api = viewer.get(f"/api/v1/ledger?{query}").json()["entries"]
    exported = viewer.get(f"/api/v1/ledger/export?format=json&{query}").getvalue().decode().splitlines()
    assert shown == [entry["id"] for entry in over_api] == [json.loads(line)["id"] for line in exported]
    assert len(shown) == FILTERS[query] and shown == sorted(shown, reverse=True)


@pytest.mark.parametrize("query", WRONG)
def test_a_filter_that_can_not_be_read_shows_nothing_and_says_where(query, viewer, entries):
    context = viewer.get(f"/ledger/?{query}").context
    assert (list(context["errors"]), context["listed"].rows) == ([WRONG[query]], [])
    answer = viewer.get(f"/api/v1/ledger?{query}")
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [WRONG[query]])


@pytest.mark.parametrize(
    ("page", "label"), [("/ledger/", "the ledger"), ("/audit/", "the audit log"), ("/dead-letters/", "dead letters")]
)
@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("2026-05-01T10:00:00Z", "2026-05-01T10:00:00"),
        ("2026-05-01T10:00:00.123+02:00", "2026-05-01T08:00:00"),
        ("2026-05-01T10:00:00", "2026-05-01T10:00:00"),
        ("yesterday", "yesterday"),
    ],
)
def test_the_form_of_a_filter_keeps_the_time_range_that_a_link_brought(
    page, label, text, field, browsers, stored_snapshot
):
    answer = browsers["administrator"].get(page, {"from": text, "to": text})
    form = form_of(answer, f"Filter {label}")
    assert (form["from"], form["to"]) == (field, field)


def test_pages_keep_the_filter_and_lead_both_ways_without_a_gap(viewer, loop):
    made = [entry_of(loop).pk for _ in range(120)]
    seen, query, first = [], "acted=0", None
    while query:
        context = viewer.get(f"/ledger/?{query}").context
        listed = context["listed"]
        seen += [entry.pk for entry in listed.rows]
        first = first or listed
        assert context["query"] == "acted=0"
        query = f"acted=0&before={listed.older}" if listed.older else ""
    assert seen == made[::-1]
    assert (first.newer, listed.newer is not None) == (None, True)
    newer = viewer.get(f"/ledger/?acted=0&after={listed.newer}").context["listed"]
    assert [entry.pk for entry in newer.rows] == made[::-1][50:100]
    assert viewer.get(f"/ledger/?ticks=all&after={newer.newer}").context["listed"].rows[0].pk == made[-1]


def test_without_a_question_about_single_ticks_what_did_nothing_is_counted_and_leads_to_its_ticks(viewer, loop):
    act = entry_of(loop, action={"start": 2}, at=FIRST)
    for second in range(1, 8):
        entry_of(loop, at=FIRST + timedelta(seconds=second))
    page = viewer.get("/ledger/?queue=alert")
    run, line = page.context["listed"].rows
    assert (run.count, line.pk) == (7, act.pk)
    assert "No action \u00d7 7" in " ".join(page.content.decode().split())
    ticks = viewer.get(ticks_of(run, "queue=alert")).context["listed"].rows
    assert [entry.at.second for entry in ticks] == [7, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("query", "live"), [("", True), ("law=flow", True), ("before=7", False), ("to=2026-05-02T00:00", False)]
)
def test_only_the_newest_page_follows_live(query, live, viewer, entries):
    page = viewer.get(f"/ledger/?{query}")
    assert page.context["live"] is live
    assert (b'data-pause="ledger-rows"' in page.content) is live


def test_an_export_is_a_table_that_no_spreadsheet_computes(viewer, loop):
    entry_of(loop, reason="=HYPERLINK('http://elsewhere')", terms={"rate": 2.5}, action={"start": -1}, raw=-1.0)
    answer = viewer.get("/api/v1/ledger/export?format=csv")
    assert answer["Content-Disposition"] == 'attachment; filename="ledger.csv"'
    (row,) = csv.DictReader(io.StringIO(answer.getvalue().decode()))
    assert row["reason"].startswith("'=HYPERLINK")
    assert (row["loop"], json.loads(row["terms"]), row["raw"]) == (loop.name, {"rate": 2.5}, "-1.0")


@pytest.mark.thorough
def test_an_export_reads_a_page_at_a_time(viewer, loop):
    LedgerEntry.objects.bulk_create(
        LedgerEntry(loop=loop, mode="auto", parameters={}, reason="calm " * 40) for _ in range(5_000)
    )
    pages = iterate_newest_first(LedgerEntry.objects.all(), rows=1_000)
    with CaptureQueriesContext(connection) as queries:
        assert len(next(pages)) == 1_000
    assert all("LIMIT 1001" in each["sql"] or " IN (" in each["sql"] for each in queries)
    assert sum(len(page) for page in pages) == 4_000
    tracemalloc.start()
    try:
        length = sum(map(len, viewer.get("/api/v1/ledger/export?format=json&ticks=all").streaming_content))
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert length > 2_000_000
    assert most_bytes < 20 * 2**20  # a page of 2,000 rows, however many pages there are


@pytest.mark.asyncio
async def test_under_asgi_the_first_piece_goes_out_before_the_second_is_made():
    made = []

    def pieces():
        for number in range(3):
            made.append(number)
            yield f"{number};"

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
    request = ASGIRequest(scope, io.BytesIO())
    content = aiter(stream_download(request, pieces(), "x.csv", "text/csv"))
    assert await anext(content) == b"0;"
    assert made == [0]
    assert [piece async for piece in content] == [b"1;", b"2;"]


OBSERVED = {"queue_length": 0, "removed": 0, "started": 0, "waiting_to_run": 0}


def test_an_entry_is_decided_once_more_and_the_page_says_by_which_code(viewer, loop):
    entry = entry_of(loop, observation=OBSERVED, parameters={"events_per_worker": 5000}, code="0123456789ab")
    page = viewer.get(f"/ledger/{entry.pk}/").content.decode()
    assert "0123456789ab" in page and "The decision differs. The code has changed since then." in page
    replay = viewer.get(f"/api/v1/ledger/{entry.pk}/replay").json()
    assert replay["same"] is False and "terms" in replay["differences"]
    assert replay["recorded_code"] == "0123456789ab" != replay["code"]


NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def folded(db):
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
    page = " ".join(viewer.get("/ledger/?ticks=all").content.decode().split())
    assert page.count("calm ") == 1 and "calm 9" in page
    assert "Same as 9 previous ticks since" in page
    run = " ".join(viewer.get("/ledger/").content.decode().split())
    assert "No action \u00d7 10" in run
    refused = viewer.get("/ledger/?ticks=1").content.decode()
    assert "must be folded or all" in refused
    exported = re.search(r'export\?format=csv&(amp;)?ticks=all"', viewer.get("/ledger/?ticks=all").content.decode())
    assert exported, "the export has what the page shows"


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


def test_the_api_lists_the_last_with_how_many_and_a_full_export_has_each(viewer, folded):
    (row,) = viewer.get("/api/v1/ledger").json()["entries"]
    assert (row["id"], row["folded_ticks"]) == (folded[-1], 9)
    assert datetime.fromisoformat(row["folded_since"]) == NOON
    answer = viewer.get("/api/v1/ledger/export?format=csv&ticks=all")
    rows = list(csv.DictReader(io.StringIO(answer.getvalue().decode())))
    assert [int(each["id"]) for each in rows] == folded[::-1]
    assert [each["reason"] for each in rows] == [f"calm {number}" for number in reversed(range(10))]


def test_an_export_has_the_ticks_of_idle_loops_as_one_row_each_and_every_decision(viewer, loop):
    """A calm plant: two loops tick in turn, and one of them acts once."""
    other = loop_of("worker_rate", queue="alert", node="n2")
    for second in range(0, 40, 2):
        acts = {"action": {"start": 1}, "verdict": "effective"} if second == 20 else {}
        entry_of(loop, at=NOON + timedelta(seconds=second), **acts)
        entry_of(other, at=NOON + timedelta(seconds=second + 1))
    answer = viewer.get("/api/v1/ledger/export?format=json")
    rows = [json.loads(line) for line in answer.getvalue().decode().splitlines()]
    assert [(row["loop"][-2:], row["folded_ticks"], row["action"]) for row in rows] == [
        ("n2", 19, None), ("n1", 8, None), ("n1", 0, {"start": 1}), ("n1", 9, None),
    ]  # fmt: skip
    assert [row["id"] for row in rows] == sorted((row["id"] for row in rows), reverse=True)
    every = viewer.get("/api/v1/ledger/export?format=json&ticks=all").getvalue().decode().splitlines()
    assert len(every) == 40 and all(viewer.get(f"/api/v1/ledger/{json.loads(line)['id']}").json() for line in every[:2])


def test_a_link_of_an_earlier_version_lists_each_tick(viewer):
    answer = viewer.get("/ledger/?law=worker_rate&each=1")
    assert answer.status_code == 302 and answer["Location"] == "/ledger/?law=worker_rate&ticks=all"
    assert viewer.get("/ledger/?each=0")["Location"] == "/ledger/?"
