"""Filters never miss a term, and what a query demands is among the terms of each task that it matches."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.task_history.samples import NOON
from workers.task_history import columns
from workers.task_history.query import TaskQuery, parse_query
from workers.task_history.record import STATES, TaskRecord
from workers.task_history.terms import (
    LINE_BYTES,
    TEXTS,
    build_filter,
    collect_terms,
    count_lines,
    list_terms,
    locate_term,
    split_words,
)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
words = st.text("ab1é-_.@'ß", min_size=1, max_size=8)
short = st.one_of(texts, st.lists(words, max_size=4).map(" ".join))
times = st.none() | st.floats(0, 4e9).map(lambda at: round(at, 3))
records = st.builds(
    TaskRecord,
    id=st.uuids().map(str) | texts.filter(bool),
    state=st.sampled_from(STATES),
    at=st.floats(NOON, NOON + 1e6).map(lambda at: round(at, 3)),
    name=short,
    worker=texts,
    queue=texts,
    args=short,
    kwargs=short,
    are_exact=st.booleans(),
    result=texts,
    error=short,
    traceback=texts,
    failure=st.sampled_from(["", "0123456789abcdef"]),
    sent=times,
    received=times,
    started=times,
    ended=times,
    run_seconds=st.none() | st.floats(0, 1e6),
    retries=st.integers(0, 9),
    retried=st.integers(0, 9),
    parent=st.just("") | st.uuids().map(str),
    root=st.just("") | st.uuids().map(str),
)


def is_possible(filter_, term):
    place = locate_term(term)
    start = place.line % count_lines(filter_) * LINE_BYTES
    return place.is_in(filter_[start : start + LINE_BYTES])


@given(st.sets(texts, min_size=1, max_size=50))
def test_a_filter_has_each_of_its_terms(terms):
    filter_ = build_filter(terms)
    assert all(is_possible(filter_, term) for term in terms)


def test_a_filter_reports_few_other_terms():
    filter_ = build_filter({f"order{number}" for number in range(20_000)})
    assert sum(is_possible(filter_, f"parcel{number}") for number in range(20_000)) < 100


@given(st.lists(records, min_size=1, max_size=5))
def test_a_block_returns_its_records(some):
    table = columns.read_encoded(columns.encode_table(columns.build_table(some)))
    assert columns.read_records(table, "shop") == [
        columns.round_times(TaskRecord(**{**values_of(record), "plant": "shop"})) for record in some
    ]


def values_of(record):
    return {name: getattr(record, name) for name in TaskRecord.__struct_fields__}


@given(records, st.data())
def test_a_query_that_matches_a_task_demands_only_terms_of_it(record, data):
    whole = "\n".join(getattr(record, name) for name in TEXTS).lower()
    parts = [part for part in (*split_words(whole), *whole.split()) if split_words(part)]
    found = data.draw(st.lists(st.sampled_from(parts or ["none"]), max_size=3))
    first = data.draw(st.integers(0, max(0, len(whole) - 1)))
    part = whole[first : first + data.draw(st.integers(1, 30))]
    field = data.draw(st.sampled_from(["id", "name", "state", "worker", "queue", "parent", "root", "failure"]))
    query = TaskQuery(words=tuple(found), texts=(part,) if part.strip() else (), **{field: getattr(record, field)})
    if field == "state" and not record.is_finished:
        query = data.draw(st.sampled_from([query, replace(query, state="open", name=record.name)]))
    if field == "name":
        query = replace(query, name=f"{record.name[: data.draw(st.integers(0, 20))]}*")
    if query.matches(record):
        assert query.terms <= list_terms(record)
        assert all(is_possible(build_filter(collect_terms([record])), term) for term in query.terms)


@given(st.lists(records, min_size=1, max_size=4), st.data())
def test_a_word_of_a_task_finds_it(some, data):
    record = data.draw(st.sampled_from(some))
    found = split_words("\n".join(getattr(record, name) for name in TEXTS))
    if found:
        assert parse_query(data.draw(st.sampled_from(found)), NOON).matches(record)


@pytest.mark.parametrize(
    ("name", "terms"), [("shop.*", {"shop"}), ("shop.pa*", {"shop"}), ("shop.pay", {"name=shop.pay"})]
)
def test_the_beginning_of_a_name_demands_its_whole_words(name, terms):
    assert TaskQuery(name=name).terms == terms
