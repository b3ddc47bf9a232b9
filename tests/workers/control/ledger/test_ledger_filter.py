"""The ledger's filters: each finds what it says, by an index; words stay found whatever an entry becomes."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from workers.control.ledger.ledger_search import INDEX, LedgerFilter, build, remove, renew
from workers.coordination import keyset
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db
START = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
REASONS = ("12 events wait. 1 worker starts.", "Nothing waits, so no worker starts.", "The node is TOOBUSY: none.")
LIMITS = (None, None, "slew", "executed workers", "maximum_waiting_to_run")


@pytest.fixture
def entries():
    """Two hundred entries of four loops, each column drawn by itself, so that all come together somewhere."""
    chance = random.Random(3)
    loops = [
        Loop.objects.create(
            name=f"worker_rate/{queue}/{node}", law="worker_rate", target={"queue": queue, "node": node}
        )
        for queue in ("alert", "process")
        for node in ("n1", "n2")
    ]
    for number in range(200):
        LedgerEntry.objects.create(
            loop=chance.choice(loops),
            at=START + timedelta(seconds=2 * number),
            mode=chance.choice(("auto", "hold")),
            parameters={},
            action=chance.choice((None, {"start": 1})),
            reason=chance.choice(REASONS),
            error=chance.choice(("", "", "BadInput: node n9 is gone")),
            limited_by=chance.choice(LIMITS),
            verdict=chance.choice(LedgerEntry.Verdict.values),
        )
    return list(LedgerEntry.objects.select_related("loop").order_by("-pk"))


def found(wanted: LedgerFilter) -> list[int]:
    """All that a filter chooses, page by page."""
    chosen, ids, before = wanted.check().choose(LedgerEntry.objects.all()), [], None
    while True:
        page = keyset.load_page(chosen, 7, before=before)
        ids += [row.pk for row in page.rows]
        if page.older is None:
            return ids
        before = page.older


def plainly(entry: LedgerEntry, wanted: LedgerFilter) -> bool:
    """What a filter means, entry by entry."""
    target, words = entry.loop.target, f"{entry.reason} {entry.error}".lower()
    return (
        (not wanted.queue or target["queue"] == wanted.queue)
        and (not wanted.node or target["node"] == wanted.node)
        and (not wanted.verdict or entry.verdict == wanted.verdict)
        and (not wanted.mode or entry.mode == wanted.mode)
        and (wanted.acted is None or (entry.action is not None) == wanted.acted)
        and (
            not wanted.limited_by
            or entry.limited_by == wanted.limited_by
            or (wanted.limited_by == "any" and entry.limited_by is not None)
        )
        and wanted.text.lower() in words
        and (wanted.since is None or entry.at >= wanted.since)
        and (wanted.until is None or entry.at < wanted.until)
    )


def test_any_filters_together_choose_what_each_of_them_chooses(entries):
    chance, some = random.Random(8), 0
    for _ in range(60):
        wanted = LedgerFilter(
            queue=chance.choice(("", "", "alert")),
            node=chance.choice(("", "", "n2")),
            verdict=chance.choice(("", "", "harmful", "no action")),
            mode=chance.choice(("", "", "hold")),
            acted=chance.choice((None, None, True, False)),
            limited_by=chance.choice(("", "", "any", "executed workers")),
            text=chance.choice(("", "", "worker starts", "TooBusy", "node n9", "nothing wai")),
            since=chance.choice((None, None, START + timedelta(seconds=101))),
            until=chance.choice((None, None, START + timedelta(seconds=303))),
        )
        expected = [entry.pk for entry in entries if plainly(entry, wanted)]
        assert found(wanted) == expected, wanted
        some += bool(expected)
    assert some > 20


def test_words_are_found_beside_each_other_and_the_last_by_its_beginning(entries):
    assert found(LedgerFilter(text="starts worker")) == []
    assert found(LedgerFilter(text="worker st")) == found(LedgerFilter(text="worker starts")) != []
    assert found(LedgerFilter(text="ork")) == found(LedgerFilter(text='"*')) == []


def test_an_entry_is_found_by_what_was_written_into_it_later_and_not_after_it_is_gone(entries):
    entry = entries[0]
    LedgerEntry.objects.filter(pk=entry.pk).update(error="Its plan was void.", verdict="ineffective")
    assert found(LedgerFilter(text="plan was void", verdict="ineffective")) == [entry.pk]
    LedgerEntry.objects.filter(pk=entry.pk).delete()
    assert found(LedgerFilter(text="plan was void")) == []


@pytest.mark.parametrize("verdict", LedgerEntry.Verdict.values)
def test_words_are_found_with_each_verdict_before_and_after_it_is_known(entries, verdict):
    entry = LedgerEntry.objects.create(
        loop=entries[0].loop, mode="auto", parameters={}, reason="A rare one.", verdict="checking"
    )
    assert found(LedgerFilter(text="rare", verdict="checking")) == [entry.pk]
    assert found(LedgerFilter(text="rare", verdict="effective")) == []
    LedgerEntry.objects.filter(pk=entry.pk).update(verdict=verdict)
    assert found(LedgerFilter(text="rare", verdict=verdict)) == [entry.pk]
    LedgerEntry.objects.filter(pk=entry.pk).delete()
    _check_index()


def _check_index():
    """The index has exactly the words of the entries."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {INDEX} ({INDEX}, rank) VALUES ('integrity-check', 1)")


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="only SQLite has this index")
def test_the_index_of_an_older_version_is_renewed(entries):
    checking = LedgerEntry.objects.create(
        loop=entries[0].loop, mode="auto", parameters={}, reason="A rare one.", verdict="checking"
    )
    with connection.cursor() as cursor:
        for statement in (
            *remove("sqlite"),
            *(text.replace("THEN 'effective'", "THEN 'checking'") for text in build("sqlite")),
        ):
            cursor.execute(statement)
        for _ in range(2):
            renew(cursor)
            _check_index()
    LedgerEntry.objects.filter(pk=checking.pk).update(verdict="harmful")
    assert found(LedgerFilter(text="rare", verdict="harmful")) == [checking.pk]
    _check_index()


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="it reads SQLite's plans")
@pytest.mark.parametrize(
    "wanted",
    [
        LedgerFilter(verdict="harmful"),
        LedgerFilter(queue="alert", verdict="no action", acted=False),
        LedgerFilter(mode="manual", since=START),
        LedgerFilter(text="worker starts", acted=False, limited_by="any"),
        LedgerFilter(text="worker starts", since=START, until=START + timedelta(days=1)),
    ],
)
def test_no_filter_reads_rows_that_it_does_not_show_nor_sorts(wanted, entries):
    with CaptureQueriesContext(connection) as queries:
        keyset.load_page(wanted.choose(LedgerEntry.objects.all()), 10)
    (search,) = [query["sql"] for query in queries if "LIMIT 11" in query["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {search}")
        plan = " | ".join(row[3] for row in cursor.fetchall())
    assert "USE TEMP B-TREE" not in plan
    if wanted.text:
        assert plan.startswith("SCAN workers_ledgersearch VIRTUAL TABLE")
    else:
        assert plan.endswith("USING COVERING INDEX ledger_filters")


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "text",
    ["3.3", "arrivals 3.3", "3.3/s", "10.0.0.1", "n1.example", "10.0.0.1:63", "events/s", "worker-ra", "refused"],
)
def test_a_number_an_address_and_a_path_are_found_as_they_are_written(entries, text):
    entry = LedgerEntry.objects.create(
        loop=entries[0].loop,
        mode="auto",
        parameters={},
        reason="Start 1 worker-rated. (Arrivals 3.3/s, 5 events/s.)",
        error="10.0.0.1:6379 and n1.example.org: refused",
    )
    assert found(LedgerFilter(text=text)) == [entry.pk]
    assert found(LedgerFilter(text="3.4")) == found(LedgerFilter(text="10.0.0.2")) == []


@pytest.mark.parametrize("text", ["_", "_ _", "'", "a' | b:*", "\\", "\u00b2", "! & |", "<->"])
def test_a_text_of_signs_is_no_error(entries, text):
    assert found(LedgerFilter(text=text)) == []
