"""The grammar of patterns: what is read, what is refused and where, and that a tree survives its text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from controllers.patterns.expression import (
    AbsentSymbol,
    Choice,
    Conjunction,
    Expression,
    HiddenItem,
    Repeat,
    Sequence,
    Symbol,
    count_minimum_events,
    iterate_symbol_names,
    parse,
    read,
    render,
)

A, B, C = Symbol("A"), Symbol("B"), Symbol("C")


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("A", A),
        ("SEQ(A; B; A)", Sequence((A, B, A))),
        ("OR(SEQ(A; B), C)", Choice((Sequence((A, B)), C))),
        ("SEQ(A{2}; B{1,3}; C{2,})", Sequence((Repeat(A, 2, 2), Repeat(B, 1, 3), Repeat(C, 2, None)))),
        ("SEQ(A+; B*; C?)", Sequence((Repeat(A, 1, None), Repeat(B, 0, None), Repeat(C, 0, 1)))),
        ("SEQ(A+?; B{2,}?)", Sequence((Repeat(A, 1, None, False), Repeat(B, 2, None, False)))),
        ("SEQ(A; NOT B; C)", Sequence((A, AbsentSymbol(B), C))),
        ("SEQ(A; {- B+ -}; C)", Sequence((A, HiddenItem(Repeat(B, 1, None)), C))),
    ],
)
def test_a_pattern_is_read_as_written(text, root):
    assert parse(text, "pattern") == Expression(root)


def test_anchors_stand_before_the_first_step_and_behind_the_last():
    assert parse("^A", "pattern") == Expression(A, at_first=True)
    assert parse("A$", "pattern") == Expression(A, at_last=True)
    assert parse("SEQ(^A; B$)", "pattern") == Expression(Sequence((A, B)), at_first=True, at_last=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must be a pattern"),
        ("SEQ()", r"character 5: expected a symbol, not '\)'"),
        ("SEQ(A;;B)", "character 7: expected a symbol, not ';'"),
        ("SEQ(A; B", r"character 9: expected '\)'"),
        ("AND(A; B)", "character 6: items of AND must be separated by ','"),
        ("A & B", "character 3: '&' is not allowed"),
        ("XOR(A, B)", "unknown group 'XOR'"),
        ("A{3,2}", "the second number"),
        ("A{0}", "can never match"),
        ("A{1001}", "up to 1000"),
        ("A++", "second quantifier"),
        ("SEQ(A?)+", "must match at least one event"),
        ("NOT A", "NOT A is allowed only between"),
        ("AND(NOT A, B)", "NOT A is allowed only between"),
        ("SEQ(NOT A; B)", "needs a step before it"),
        ("SEQ(A; NOT SEQ(B; C))", "NOT must be followed by one symbol"),
        ("SEQ(A; NOT B; B)", "can never match"),
        ("SEQ(A; NOT C; NOT B; B+)", "can never match"),
        ("SEQ(" * 30 + "A" + ")" * 30, "nested deeper"),
    ],
)
def test_what_is_no_pattern_or_can_never_match_is_refused_with_its_place(text, says):
    with pytest.raises(BadInput, match=says) as refused:
        parse(text, "pattern")
    assert refused.value.field == "pattern"


def repeated(item):
    return st.builds(
        lambda part, least, more, greedy: Repeat(part, least, None if more is None else least + more, greedy),
        item.filter(lambda part: not isinstance(part, (Repeat, AbsentSymbol)) and count_minimum_events(part)),
        st.integers(0, 3),
        st.none() | st.integers(1, 3),
        st.booleans(),
    )


TREES = st.recursive(
    st.sampled_from([A, B, C, AbsentSymbol(A)]),
    lambda item: st.one_of(
        st.lists(item, min_size=1, max_size=3).map(lambda items: Sequence(tuple(items))),
        st.lists(item, min_size=1, max_size=3).map(lambda items: Conjunction(tuple(items))),
        st.lists(item, min_size=1, max_size=3).map(lambda items: Choice(tuple(items))),
        item.filter(lambda part: not isinstance(part, AbsentSymbol)).map(HiddenItem),
        repeated(item),
    ),
    max_leaves=8,
)


@given(TREES)
def test_a_tree_is_the_same_after_it_was_written_and_read(tree):
    assert read(render(tree)) == tree
    assert list(iterate_symbol_names(read(render(tree)))) == list(iterate_symbol_names(tree))
