"""Patterns that are more than sequences, where one match follows the other, against Python's regular expressions."""

import re

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from controllers.patterns.expression import Choice, Expression, Item, Repeat, Sequence, Symbol, count_minimum_events
from tests.workers.pipeline.matching.patterns import pattern_of, rows_of
from workers.pipeline.matching.interpreted import AutomatonMatcher
from workers.pipeline.matching.matcher import compute_masks
from workers.pipeline.matching.retained import concatenate
from workers.pipeline.patterns.pattern import Pattern, parse_definitions

LETTERS = st.text("ABCX", max_size=25)
FOREVER_US = 10**6


def rows_from(text: str) -> pa.RecordBatch:
    return rows_of([(time, letter, 0, "x") for time, letter in enumerate(text)])


def found(pattern: Pattern, rows: pa.RecordBatch) -> list[list[int]]:
    finder = AutomatonMatcher(pattern)
    matches = concatenate([finder.take(rows, compute_masks(pattern, rows)), finder.finish()])
    return [[int(id_[1:]) for id_ in ids] for ids in matches.get_event_ids()]


def searched(expression: str, text: str) -> list[tuple[int, int]]:
    """(begin, end) of group `m` in each match, as SQL skips: past its end, or on by one without a match."""
    spans, at = [], 0
    while at < len(text):
        match = re.compile(expression).match(text, at)
        if match and match.end("m") > at:
            spans.append(match.span("m"))
            at = match.end("m")
        else:
            at += 1
    return spans


def regex(item: Item) -> str:
    match item:
        case Symbol(name):
            return name
        case Sequence(items):
            return "".join(map(regex, items))
        case Choice(items):
            return f"(?:{'|'.join(map(regex, items))})"
        case Repeat(part, least, most, greedy):
            counts = f"{{{least},{'' if most is None else most}}}"
            return f"(?:{regex(part)}){counts}{'' if greedy else '?'}"
    raise AssertionError(item)


def repeats(item: st.SearchStrategy[Item]) -> st.SearchStrategy[Item]:
    return st.builds(
        lambda part, least, more, greedy: Repeat(part, least, None if more is None else least + more, greedy),
        item.filter(lambda part: not isinstance(part, Repeat) and count_minimum_events(part) > 0),
        st.integers(0, 2),
        st.none() | st.integers(1, 2),
        st.booleans(),
    )


TREES = st.recursive(
    st.sampled_from([Symbol("A"), Symbol("B"), Symbol("C")]),
    lambda item: st.one_of(
        st.lists(item, min_size=2, max_size=3).map(lambda items: Sequence(tuple(items))),
        st.lists(item, min_size=2, max_size=3).map(lambda items: Choice(tuple(items))),
        repeats(item),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=200)
@given(TREES, st.text("ABC", max_size=20))
def test_strict_row_patterns_match_as_regular_expressions_do(tree, text):
    assume(count_minimum_events(tree))
    expression = Expression(tree)
    pattern = Pattern(
        "p",
        expression,
        parse_definitions(expression, {}, "define"),
        "source",
        FOREVER_US,
        contiguity="strict",
        consume="skip-past-last",
    )
    expected = [list(range(*span)) for span in searched(f"(?P<m>{regex(tree)})", text)]
    assert found(pattern, rows_from(text)) == expected


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("SEQ(A; B+; C)", "(?P<m>A[^B]*B(?:[^BC]*B)*[^BC]*C)"),
        ("SEQ(A; B*; C)", "(?P<m>A(?:[^BC]*B)*[^BC]*C)"),
        ("SEQ(A; B?; C)", "(?P<m>A[^BC]*(?:B[^C]*)?C)"),
        ("SEQ(A; B{2}; C)", "(?P<m>A[^B]*B[^B]*B[^C]*C)"),
        ("SEQ(A; NOT X; B)", "(?P<m>A[^BX]*B)"),
        ("SEQ(A; NOT X; NOT C; B)", "(?P<m>A[^BXC]*B)"),
        ("SEQ(A+; NOT X; B)", "(?P<m>A(?:[^ABX]*(?:X[^A]*)?A)*[^ABX]*B)"),
        ("SEQ(A; B)+", "(?P<m>A[^B]*B(?:[^A]*A[^B]*B)*)"),
        ("SEQ(A; B+)", "(?P<m>A[^B]*B(?:[^B]*B)*)"),
        ("SEQ(A; B{1,2}?; C)", "(?P<m>A[^B]*B[^BC]*(?:B[^C]*)?C)"),
        ("AND(A, B)", "(?P<m>A[^B]*B|B[^A]*A)"),
        ("SEQ(A; OR(B, C); X)", "(?P<m>A[^BC]*[BC][^X]*X)"),
        ("SEQ(A; B; NOT X)", "(?P<m>A[^B]*B)[^X]*$"),
    ],
)
@settings(deadline=None, max_examples=60)
@given(LETTERS)
def test_relaxed_row_patterns_match_as_regular_expressions_with_gaps_do(text, expression, letters):
    pattern = pattern_of(text, within_us=FOREVER_US, consume="skip-past-last")
    spans = [(match[0], match[-1] + 1) for match in found(pattern, rows_from(letters))]
    assert spans == searched(expression, letters)
