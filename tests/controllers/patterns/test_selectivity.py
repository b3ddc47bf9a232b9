"""Expressions and their selectivity (Röger's Table I, with ERRATA E22)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from controllers.patterns.selectivity import answer, compute_output_rate, find_bottleneck_types, needs_of

RATES = {"A": 9.0, "B": 7.0, "C": 2.0}


@pytest.mark.parametrize(
    ("expression", "rate", "limiting"),
    [
        ("A", 9, ["A"]),
        ("SEQ(A; B; A)", 4.5, ["A"]),
        ("OR(A, B)", 16, ["A", "B"]),
        ("AND(A, SEQ(A;A;B))", 3, ["A"]),
        ("AND(OR(A, C), B)", 7, ["B"]),
        ("OR(SEQ(A; B), SEQ(A; C))", 9, ["A", "B", "C"]),
        ("AND(A, D)", 0, ["D"]),
    ],
)
def test_the_output_rate_and_what_limits_it(expression, rate, limiting):
    needs, rates = needs_of(expression), {**RATES, "D": 0.0}
    assert compute_output_rate(needs, rates) == pytest.approx(rate)
    assert sorted(find_bottleneck_types(needs, rates)) == limiting


expressions = st.recursive(
    st.sampled_from("ABC"),
    lambda inner: st.tuples(st.sampled_from(["SEQ", "AND", "OR"]), st.lists(inner, min_size=1, max_size=3)).map(
        lambda pair: f"{pair[0]}({('; ' if pair[0] == 'SEQ' else ', ').join(pair[1])})"
    ),
    max_leaves=6,
)
some_rates = st.fixed_dictionaries({name: st.floats(0, 100) for name in "ABC"})


@given(expressions, some_rates, st.floats(1, 3))
def test_more_events_never_mean_fewer_matches_and_all_scaled_scale_the_matches(expression, rates, factor):
    needs = needs_of(expression)
    before = compute_output_rate(needs, rates)
    assert compute_output_rate(needs, {**rates, "A": rates["A"] * factor}) >= before * (1 - 1e-9) - 1e-9
    scaled = {name: rate * factor for name, rate in rates.items()}
    assert compute_output_rate(needs, scaled) == pytest.approx(before * factor, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize(
    ("pattern", "counts"), [("SEQ(A; B{2,4}; C+)", {"A": 1, "B": 2, "C": 1}), ("SEQ(A; NOT X; B?; C*)", {"A": 1})]
)
def test_what_is_repeated_counts_as_often_as_it_must_be_there(pattern, counts):
    assert needs_of(pattern).counts == counts


def test_the_design_answers_with_the_rate_and_its_bottleneck():
    found = answer({"expression": "SEQ(0;0;1)", "rates": {"0": 40, "1": 30}})
    assert found == {"output_rate": 20.0, "bottleneck_types": ["0"]}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"expression": "SEQ(A;B)", "rates": {"A": 1}}, "rates.B"),
        ({"expression": "SEQ(A;B", "rates": {"A": 1, "B": 1}}, "expression"),
        ({"expression": "A*", "rates": {}}, "expression"),
        ({"expression": "A", "rates": {"A": -1}}, "rates.A"),
        ({"rates": {"A": 1}}, "expression"),
    ],
)
def test_a_design_without_sense_is_refused_by_name(document, field):
    with pytest.raises(BadInput) as refused:
        answer(document)
    assert refused.value.field == field
