"""Documents packed into a column: read back as they were, older ones as JSON text too, and much shorter."""

import json
from datetime import UTC, datetime

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from workers.coordination.packed_json import pack, unpack
from workers.models import LedgerEntry, Loop

# What the fast encoder refuses, or writes as null.
unusual = st.sampled_from((2**64, -(2**70), float("inf"), float("-inf"), 1e22, -0.0, "half of a pair \ud800"))
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text() | unusual,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(documents)
def test_what_is_packed_is_read_back_the_same(document):
    assert unpack(pack(document)) == document


@given(documents)
def test_json_text_of_an_older_row_is_read_too(document):
    text = json.dumps(document)
    assert unpack(text) == unpack(text.encode()) == document


@pytest.mark.parametrize("value", [object(), datetime(2026, 1, 5, tzinfo=UTC), {1, 2}])
def test_what_is_not_json_is_refused(value):
    with pytest.raises(TypeError):
        pack({"of": value})


@pytest.fixture
def loop(db):
    return Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate")


def test_an_entry_keeps_its_documents_and_nothing_stays_nothing(loop):
    terms = {"rate": 2.5, "node_state": "NORMAL", "trend_per_second": None, "note": "ü"}
    LedgerEntry.objects.create(loop=loop, mode="auto", parameters={"a": [1]}, reason="calm", terms=terms)
    entry = LedgerEntry.objects.get()
    assert (entry.terms, entry.parameters, entry.observation) == (terms, {"a": [1]}, None)
    assert LedgerEntry.objects.filter(observation__isnull=True).exists()


def test_an_entry_written_before_documents_were_packed_is_read(loop):
    entry = LedgerEntry.objects.create(loop=loop, mode="auto", parameters={}, reason="calm")
    stored = '{"upper_limit": 700}'
    with connection.cursor() as cursor:
        value = stored if connection.vendor == "sqlite" else stored.encode()
        cursor.execute("UPDATE workers_ledgerentry SET parameters = %s WHERE id = %s", [value, entry.pk])
    assert LedgerEntry.objects.get().parameters == {"upper_limit": 700}
