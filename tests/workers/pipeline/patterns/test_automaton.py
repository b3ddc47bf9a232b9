"""What may come next in a pattern: however many items there are, they are no depth."""

from controllers.patterns.expression import AbsentSymbol, Repeat, Sequence, Symbol
from workers.pipeline.patterns.automaton import EMPTY, Ending, list_options, skip_event

A, B, X = Symbol("A"), Symbol("B"), Symbol("X")
MANY = 800


def test_of_many_items_that_may_all_be_left_out_each_may_come_next():
    found = list_options(Sequence((Repeat(B, 0, 1),) * MANY))
    assert len(found) == MANY + 1 and found[-1].what is Ending.NOW
    assert found[MANY - 1].what.rest == EMPTY


def test_a_not_before_many_items_is_decided_without_them():
    steps = (AbsentSymbol(X), *[B] * MANY)
    assert skip_event(Sequence(steps), frozenset({"X"})) is None
    assert skip_event(Sequence(steps), frozenset({"A"})) == Sequence(steps)
    left_out = (AbsentSymbol(X), *[Repeat(B, 0, 1)] * MANY, A)
    assert skip_event(Sequence(left_out), frozenset({"X"})) is None
    assert skip_event(Sequence(left_out), frozenset({"B"})) == Sequence(left_out)
