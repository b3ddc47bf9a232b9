"""Rows written together: the same columns as Django writes one by one, under keys that no row ever had."""

from datetime import UTC, datetime

import pytest
from django.db import IntegrityError, connection, transaction

from workers.coordination import bulk_writes
from workers.coordination.bulk_writes import prepare_values, update_rows
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
COMMON = {"mode": "auto", "at": NOON, "fence": 7, "code": "abc"}
JSON_COLUMNS = ("action", "state")
DOCUMENTS = {"parameters": {"upper_limit": 700.0}, "terms": {"rate": 2.5, "cap": None, "limit": float("inf"), "ü": [1]}}
ENTRIES = (
    {"reason": "No action: queue is empty.", "parameters": {}},
    {
        **DOCUMENTS,
        "reason": "Start 1 worker: ü.",
        "action": {"start": 1},
        "raw": 1,
        "guarded": 1.0,
        "verdict": "checking",
    },
    {
        **DOCUMENTS,
        "reason": "",
        "limited_by": "guard slew",
        "error": "away",
        "applied": True,
        "outcome": {"a": {"b": 1}},
    },
    {"parameters": {}, "reason": "Folded.", "folded": b"\x01\x00", "folded_ticks": 3, "folded_since": NOON},
)


@pytest.fixture
def loop(db):
    return Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target={"queue": "alert"})


def build_entries(loop):
    return [LedgerEntry(loop=loop, **COMMON, **values) for values in ENTRIES]


def insert_rows(entries):
    bulk_writes.insert_rows(entries, prepare_values(LedgerEntry, entries))


def read_columns(model):
    """Return every column as the database has it, except for the key, and documents as they are read."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {model._meta.db_table} ORDER BY id")
        names = [column[0] for column in cursor.description]
        raw = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    documents = [name for name in (*DOCUMENTS, *JSON_COLUMNS) if name in names]
    rows = model.objects.order_by("pk")
    return [{**columns, **{name: getattr(row, name) for name in documents}, "id": None}
            for columns, row in zip(raw, rows, strict=True)]  # fmt: skip


def test_entries_are_written_as_django_writes_them(loop):
    for entry in build_entries(loop):
        entry.save()
    one_by_one = read_columns(LedgerEntry)
    LedgerEntry.objects.all().delete()
    insert_rows(build_entries(loop))
    assert read_columns(LedgerEntry) == one_by_one


def test_each_new_row_knows_its_key(loop):
    entries = build_entries(loop)
    insert_rows(entries)
    assert [LedgerEntry.objects.get(pk=entry.pk).reason for entry in entries] == [entry.reason for entry in entries]
    entries[0].error = "later"
    entries[0].save()
    assert LedgerEntry.objects.count() == len(entries)


def test_a_key_of_a_deleted_row_is_not_given_again(loop):
    first, second = build_entries(loop)[:2]
    insert_rows([first])
    used = first.pk
    LedgerEntry.objects.all().delete()
    insert_rows([second])
    assert second.pk > used
    assert LedgerEntry.objects.create(loop=loop, **COMMON, parameters={}, reason="").pk > second.pk


def test_loops_are_updated_as_django_updates_them(loop):
    changed = {"fence": 9, "state": {"law": {"rate": 1.5}, "guard": None}, "ticked_at": NOON, "at_rest": True}
    Loop.objects.filter(pk=loop.pk).update(**changed)
    by_django = read_columns(Loop)
    Loop.objects.filter(pk=loop.pk).update(fence=0, state=None, ticked_at=None, at_rest=False)
    loop.name = "not one of the fields"
    for name, value in changed.items():
        setattr(loop, name, value)
    names = list(changed)
    update_rows(Loop, names, prepare_values(Loop, [loop], names))
    assert read_columns(Loop) == by_django


def test_only_rows_with_the_required_values_are_updated(loop):
    entries = build_entries(loop)
    insert_rows(entries)
    for entry in entries:
        entry.outcome = {"after": 1}
    names = ["outcome"]
    update_rows(
        LedgerEntry, names, prepare_values(LedgerEntry, entries, names), {"verdict": "checking", "mode": "auto"}
    )
    rows = LedgerEntry.objects.order_by("pk")
    assert [row.outcome == {"after": 1} for row in rows] == [row.verdict == "checking" for row in rows]


def test_a_row_that_can_not_be_written_is_refused_like_any_other(loop):
    entries = build_entries(loop)
    entries[1].mode = None
    with pytest.raises(IntegrityError), transaction.atomic():
        insert_rows(entries)
    entries[1].mode, entries[1].terms = "auto", {"of": object()}
    with pytest.raises(TypeError), transaction.atomic():
        insert_rows(entries)
    assert not LedgerEntry.objects.exists()


def test_without_rows_nothing_is_done(django_assert_num_queries):
    with django_assert_num_queries(0):
        insert_rows([])
        update_rows(Loop, ["fence"], [])
