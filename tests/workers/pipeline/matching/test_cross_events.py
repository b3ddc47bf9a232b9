"""Conditions between the events of a match, and measures: reference cases of other engines, and errors."""

import json
import math
from typing import Any

import pytest

from common.errors import BadInput, Forbidden
from tests.shared_data import DATA
from workers.pipeline.matching.match_request import answer

CASES = DATA / "reference"


def agree(value: Any, other: Any) -> bool:
    """Return whether two answers are equal, with numbers to 1e-9."""
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(agree(value[name], other[name]) for name in value)
    if isinstance(value, list):
        return len(value) == len(other) and all(map(agree, value, other))
    if isinstance(value, int | float) and isinstance(other, int | float):
        return math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(value == other)


def pairs(document: dict[str, Any], ordered: bool) -> list[list[Any]]:
    """Return each match with its measures."""
    measures = document.get("measures") or [{}] * len(document["matches"])
    together = [list(pair) for pair in zip(document["matches"], measures, strict=True)]
    return together if ordered else sorted(together, key=lambda pair: pair[0])


@pytest.mark.parametrize("name", ["cep_cross_event.json", "cep_cross_event_random.json"])
def test_the_cases_of_other_engines_hold(name):
    if not (CASES / name).exists():
        pytest.skip("the reference cases lie beside the project and are not here")
    for case in json.loads((CASES / name).read_text())["cases"]:
        found, expected = (pairs(part, case["ordered"]) for part in (answer(case["request"]), case["expected"]))
        assert agree(found, expected), (case["id"], found, expected)


def events(*values: Any, types: str = "") -> list[dict[str, Any]]:
    rows = [{"id": f"e{at}", "time": float(at), "value": value} for at, value in enumerate(values)]
    return [{**row, "type": types[at] if types else "A"} for at, row in enumerate(rows)]


def ask(pattern: str, define: dict[str, str], rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return answer({"pattern": pattern, "define": define, "events": rows, **more})


def test_an_amount_ten_times_the_previous_one_is_found_with_its_ratio():
    found = ask(
        "SEQ(A; B)",
        {"A": "true", "B": "value > 10 * A.value"},
        events(4, 5, 93, 940),
        measures={"by": "B.value / A.value"},
    )
    assert found["matches"] == [["e0", "e2"], ["e1", "e3"]]
    assert found["measures"] == [{"by": 23.25}, {"by": 188.0}]


def test_texts_of_two_events_can_be_compared():
    rows = [{**row, "ip": ip} for row, ip in zip(events(1, 2, 3), ("10.0.0.1", "10.0.0.1", "10.0.0.2"), strict=True)]
    found = ask("SEQ(A; B)", {"A": "true", "B": "B.ip != A.ip"}, rows, consume="skip-past-last")
    assert found == {"matches": [["e0", "e2"]]}


def test_a_price_falls_and_rises_above_where_it_fell_from():
    define = {
        "A": "true",
        "DOWN": "value < prev(value)",
        "UP": "value > prev(value) and value <= 2 * first(DOWN.value)",
    }
    found = ask(
        "SEQ(A; DOWN+; UP+)",
        define,
        events(90, 80, 60, 70, 95, 200),
        contiguity="strict",
        consume="skip-past-last",
        measures={"low": "last(DOWN.value)", "high": "last(UP.value)"},
    )
    assert found == {"matches": [["e0", "e1", "e2", "e3", "e4"]], "measures": [{"low": 60, "high": 95}]}


def test_whole_numbers_of_two_events_are_compared_exactly():
    define = {"A": "true", "B": "value - A.value = 1"}
    assert ask("SEQ(A; B)", define, events(2**53, 2**53 + 1, 2**70))["matches"] == [["e0", "e1"]]
    assert ask("SEQ(A; B)", define, events(2**70, 2**70 + 1))["matches"] == [["e0", "e1"]]


def test_a_measure_without_a_finite_value_is_null():
    found = ask("A", {"A": "true"}, events(1), measures={"ratio": "A.value / 0", "none": "0 / 0", "text": "type"})
    assert found["measures"] == [{"ratio": None, "none": None, "text": "A"}]


def test_measures_of_no_match_are_an_empty_list():
    assert ask("A", {}, events(1, types="B"), measures={"v": "A.value"}) == {"matches": [], "measures": []}
    assert ask("A", {}, [], measures={"v": "A.value"}) == {"matches": [], "measures": []}


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("value > Q.value", "'Q.value' refers to 'Q', which is not a symbol of the pattern; use one of A, B"),
        ("value > a.value", "use one of A, B"),
        ("sum(A.value + B.value) > 1", "must be an expression of one symbol, not of A and B"),
        ("sum(A.value + value) > 1", "not of A and attributes without a symbol"),
        ("value > last(A.value, -1)", "must have a whole number from 0 to 1000"),
        ("value > first(A.value, 1.5)", "must have a whole number from 0 to 1000"),
        ("value > first(A.value, true)", "must have a whole number from 0 to 1000"),
        ("value > first(A.value, A.value)", "must have a whole number from 0 to 1000"),
        ("value > last(A.value, 1001)", "must have a whole number from 0 to 1000"),
        ("value > sum(A.value, 1)", "must have one argument, such as sum(A.value)"),
        ("value > sum()", "must have one argument"),
        ("value > sum(prev(value))", "must contain an attribute or a calculation"),
        ("value > sum(max(value))", "must contain an attribute or a calculation"),
        ("count(A.value > 3) > 1", "must contain an attribute or a calculation"),
        ("value > prev(A.value)", "use prev(column)"),
        ("value > median(A.value)", "is unknown; use prev(column), such as prev(value), or first, last, count"),
        ("value > A.b.value", "must consist of letters, digits, and _"),
        ("value > A.name", "reads 'name', which no event has"),
        ("type > A.value", "is not valid for the events"),
        ("value > sum(A.type)", "is not valid for the events"),
        ("count(A) > 2 and count(A) < 1", "is never true"),
    ],
)
def test_a_condition_that_is_not_in_the_language_is_refused_with_its_reason(condition, says):
    with pytest.raises(BadInput) as refused:
        ask("SEQ(A; B)", {"B": condition}, events(1, 2))
    assert refused.value.field == "define.B" and says in refused.value.message


@pytest.mark.parametrize(
    ("measures", "field", "says"),
    [
        ({"m": "A.value > 1"}, "measures.m", "must be a value such as last(B.value) - A.value, not the condition"),
        ({"m": "true"}, "measures.m", "must be a value"),
        ({"m": "Q.value"}, "measures.m", "not a symbol of the pattern"),
        ({"m": "A.name"}, "measures.m", "reads 'name', which no event has"),
        ({"m": "A.type + 1"}, "measures.m", "is not valid for the events"),
        ({"m": ""}, "measures.m", "must be an expression"),
        ({"": "A.value"}, "measures", "must have non-empty strings as names"),
        (["A.value"], "measures", "must map names to expressions"),
        ({f"m{at}": "A.value" for at in range(65)}, "measures", "at most 64"),
    ],
)
def test_a_measure_that_is_not_a_value_is_refused_with_its_reason(measures, field, says):
    with pytest.raises(BadInput) as refused:
        ask("SEQ(A; B)", {}, events(1, 2), measures=measures)
    assert refused.value.field == field and says in refused.value.message


def test_a_symbol_whose_name_is_not_plain_can_be_used_but_not_referred_to():
    rows = [
        {"id": "e0", "time": 0.0, "type": "cpu.high", "value": 1},
        {"id": "e1", "time": 1.0, "type": "B", "value": 2},
    ]
    assert ask("SEQ(cpu.high; B)", {"B": "value > count(B)"}, rows)["matches"] == [["e0", "e1"]]
    with pytest.raises(BadInput, match="must consist of letters, digits, and _"):
        ask("SEQ(cpu.high; B)", {"B": "value > cpu.high.value"}, rows)


def test_a_pattern_with_too_many_ways_to_bind_its_events_is_refused():
    define = {"A": "true", "B": "true", "X": "sum(A.value) = 0.5"}
    rows = events(*(2**at for at in range(20)))
    with pytest.raises(Forbidden, match="more than 20000 ways to match the same events"):
        ask("SEQ(OR(A, B)*; X)", define, rows, contiguity="strict", consume="skip-past-last")


def test_ways_that_no_condition_can_distinguish_are_one():
    define = {"A": "true", "B": "true", "X": "count(A) = 30 and value = 39"}
    found = ask("SEQ(OR(A, B)*; X)", define, events(*range(40)), contiguity="strict", consume="skip-past-last")
    assert len(found["matches"][0]) == 40
