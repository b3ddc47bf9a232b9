"""Conditions between events, and measures, in a declared application."""

from pathlib import Path

import pytest

from common.errors import BadInput
from workers.pipeline.declaration.declaration import Application, build_application


def declare(
    define: dict[str, str], measures: object = None, later: dict[str, str] | None = None, **more: str
) -> Application:
    """Declare SEQ(paid; B) as `spike`, and `late`, which may read it."""
    spike = {
        "name": "spike",
        "pattern": "SEQ(paid; B)",
        "define": define,
        "key": "source",
        "within_seconds": 10,
        **more,
    }
    if measures is not None:
        spike["measures"] = measures
    late = {"name": "late", "pattern": "SEQ(spike; C)", "define": later or {}, "key": "source", "within_seconds": 10}
    document = {
        "name": "payments",
        "queues": ["telemetry"],
        "sink": "alert",
        "attributes": {"amount": "number", "card": "text"},
        "patterns": [spike, late],
    }
    return build_application(document, Path())


def test_a_pattern_compares_its_events_and_its_measures_feed_the_next_pattern():
    application = declare(
        {"B": 'type == "paid" and amount > 10 * paid.amount'},
        {"ratio": "B.amount / paid.amount"},
        {"spike": 'type == "spike" and ratio > 20', "C": "amount > spike.ratio"},
    )
    assert set(application.patterns[0].measures) == {"ratio"}
    assert application.graph.inner_measures == {"ratio"}
    assert "amount" in application.graph.columns and "ratio" not in application.graph.columns


def test_a_match_that_may_wait_for_an_earlier_start_feeds_no_operator():
    """It would come out behind events that the next operator has had."""
    define = {"B": 'type == "paid" and amount > 10 * paid.amount'}
    with pytest.raises(BadInput, match="a match can wait for an earlier start"):
        declare(define, consume="skip-past-last")
    assert declare(define, consume="skip-past-last", contiguity="strict")


@pytest.mark.parametrize(
    ("define", "measures", "later", "field", "says"),
    [
        ({"B": "amount > Q.amount"}, None, None, "patterns[0].define.B", "'Q', which is not a symbol"),
        ({"B": "amount > paid.amont"}, None, None, "patterns[0].define.B", "'amont' is not a column"),
        ({"B": "amount > prev(amont)"}, None, None, "patterns[0].define.B", "'amont' is not a column"),
        ({}, {"m": "B.amont"}, None, "patterns[0].measures.m", "'amont' is not a column"),
        ({}, {"m": "B.amount > 1"}, None, "patterns[0].measures.m", "must be a value"),
        ({}, {"severity": "B.amount"}, None, "patterns[0].measures.severity", "is an attribute of every complex event"),
        ({}, {"value": "B.amount"}, None, "patterns[0].measures.value", "is an attribute of every complex event"),
        ({}, {"amount": "B.amount"}, None, "patterns[0].measures.amount", "is already a column of events"),
        ({}, {"a b": "B.amount"}, None, "patterns[0].measures.a b", "must be a name"),
        ({}, ["B.amount"], None, "patterns[0].measures", "must be an object of name: value pairs"),
        ({}, {"ratio": "B.amount"}, {"C": "ration > 3"}, "patterns[1].define.C", "did you mean ratio?"),
    ],
)
def test_a_mistake_in_a_condition_or_a_measure_is_named(define, measures, later, field, says):
    with pytest.raises(BadInput) as refused:
        declare(define, measures, later)
    assert refused.value.field == field and says in refused.value.message, refused.value
