"""`match` on random documents, against the reference that goes by positions (`reference`)."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, seed, settings
from hypothesis import strategies as st

from common.errors import BadInput
from controllers.patterns.expression import (
    AbsentSymbol,
    Choice,
    Conjunction,
    Item,
    Repeat,
    Sequence,
    Symbol,
    count_minimum_events,
    iterate_symbol_names,
    parse,
    render,
)
from tests.workers.pipeline.matching.reference import Event, Reference
from workers.pipeline.matching.match_request import answer

MOST = 2**63 - 1
LETTERS = "ABCD"
NUMBERS = st.sampled_from([2**53, 2**53 + 1, MOST, MOST - 1, -(2**63), 2**64 - 1, 1, 0.5, float(2**53), None])
USERS = st.sampled_from([MOST, MOST - 1, 5, 5.0])
Document = dict[str, Any]
Condition = Callable[[Document, Document | None], bool]


def of(number: Callable[[Any], bool]) -> Condition:
    return lambda event, before: event["n"] is not None and number(event["n"])


def of_two(numbers: Callable[[Any, Any], bool]) -> Condition:
    return lambda event, before: (
        before is not None and None not in (event["n"], before["n"]) and numbers(event["n"], before["n"])
    )


# What a symbol may be defined as, and the same in Python's own numbers.
CONDITIONS: dict[str, Condition] = {
    "n > 9223372036854775806": of(lambda n: n > MOST - 1),
    "n == 9007199254740993": of(lambda n: n == 2**53 + 1),
    "n in (9007199254740993, 0.5)": of(lambda n: n in (2**53 + 1, 0.5)),
    "not (n <= 9007199254740992)": of(lambda n: n > 2**53),
    "n + 1 > 9223372036854775807": of(lambda n: n + 1 > MOST),
    "type in ('A', 'B')": lambda event, before: event["type"] in "AB",
    "type != 'C' and (n > 1 or n < 0.75)": (
        lambda event, before: event["type"] != "C" and event["n"] is not None and not 0.75 <= event["n"] <= 1
    ),
    "n < prev(n)": of_two(lambda n, before: n < before),
    "n - prev(n) == 1": of_two(lambda n, before: n - before == 1),
}


def quantified(items: st.SearchStrategy[Item]) -> st.SearchStrategy[Item]:
    return st.builds(
        lambda part, least, more, greedy: Repeat(part, least, None if more is None else least + more, greedy),
        items.filter(lambda part: not isinstance(part, Repeat) and count_minimum_events(part) > 0),
        st.integers(0, 2),
        st.none() | st.integers(1, 2),
        st.booleans(),
    )


def sequences(items: st.SearchStrategy[Item]) -> st.SearchStrategy[Item]:
    steps = st.lists(st.tuples(items, st.none() | SYMBOLS.map(AbsentSymbol)), min_size=2, max_size=3)
    return steps.map(lambda pairs: Sequence(tuple(part for pair in pairs for part in pair if part is not None)))


def guarded_sequences(items: st.SearchStrategy[Item]) -> st.SearchStrategy[Item]:
    """With a NOT only before a step that takes an event: until then nothing of it ends."""

    def joined(pairs: list[tuple[Item, Item | None]]) -> Item:
        steps = [pairs[0][0]]
        for (_, absence), (step, _) in itertools.pairwise(pairs):
            steps += [absence, step] if absence is not None and count_minimum_events(step) else [step]
        return Sequence(tuple(steps))

    return st.lists(st.tuples(items, st.none() | SYMBOLS.map(AbsentSymbol)), min_size=2, max_size=3).map(joined)


def conjunctions(items: st.SearchStrategy[Item]) -> st.SearchStrategy[Item]:
    return st.lists(items, min_size=2, max_size=3).map(lambda parts: Conjunction(tuple(parts)))


def choices(items: st.SearchStrategy[Item]) -> st.SearchStrategy[Item]:
    return st.lists(items, min_size=2, max_size=3).map(lambda parts: Choice(tuple(parts)))


SYMBOLS = st.sampled_from([Symbol(letter) for letter in LETTERS])
# What stands in an AND has no NOT where it may end: it would have to end the other parts, too.
PARTS = st.recursive(
    SYMBOLS,
    lambda items: st.one_of(guarded_sequences(items), choices(items), quantified(items), conjunctions(items)),
    max_leaves=4,
)
TREES = st.recursive(
    SYMBOLS | conjunctions(PARTS),
    lambda items: st.one_of(sequences(items), choices(items), quantified(items)),
    max_leaves=5,
)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    root = draw(TREES | sequences(TREES) | conjunctions(PARTS))
    written = render(root)
    steps = draw(st.lists(st.integers(0, 3), min_size=1, max_size=14))
    events = [
        {
            "id": f"e{place}",
            "time": float(seconds),
            "type": draw(st.sampled_from(LETTERS + "X")),
            # What a condition reads has to be there at least once.
            "n": draw(NUMBERS) if place else 1,
            "user": draw(USERS),
        }
        for place, seconds in enumerate(itertools.accumulate(steps))
    ]
    used = sorted(set(iterate_symbol_names(root)))
    defined = draw(st.lists(st.sampled_from(used), unique=True, max_size=2)) if draw(st.booleans()) else []
    return {
        "pattern": written,
        "define": {letter: draw(st.sampled_from(sorted(CONDITIONS))) for letter in defined},
        "contiguity": draw(st.sampled_from(["relaxed", "strict"])),
        "consume": draw(st.sampled_from(["once", "skip-past-last"])),
        "within_seconds": draw(st.sampled_from([0, 4, 9, 1000])),
        "key": draw(st.sampled_from([None, None, "user"])),
        "events": events,
    }


def satisfied(document: Document, event: Document, before: Document | None) -> frozenset[str]:
    define = document["define"]
    return frozenset(
        letter
        for letter in LETTERS
        if (CONDITIONS[define[letter]](event, before) if letter in define else event["type"] == letter)
    )


def expected(document: Document) -> dict[object, list[list[str]]]:
    """Key → the ids of its matches, in the order of completion."""
    by_key: dict[object, list[Event]] = {}
    last: dict[object, Document] = {}
    for place, event in enumerate(document["events"]):
        key = event["user"] if document["key"] else None
        held = satisfied(document, event, last.get(key))
        by_key.setdefault(key, []).append(Event(place, round(event["time"] * 1e6), held))
        last[key] = event
    root, relaxed = parse(document["pattern"], "pattern").root, document["contiguity"] == "relaxed"
    found = {}
    for key, events in by_key.items():
        reference = Reference(root, relaxed, document["within_seconds"] * 1_000_000)
        matches = reference.once(events) if document["consume"] == "once" else reference.skipping_past_last(events)
        if matches:
            found[key] = [[f"e{place}" for place in match] for match in matches]
    return found


def found(document: Document) -> dict[object, list[list[str]]]:
    keys = {event["id"]: event["user"] if document["key"] else None for event in document["events"]}
    by_key: dict[object, list[list[str]]] = {}
    for ids in answer(document)["matches"]:
        by_key.setdefault(keys[ids[0]], []).append(ids)
    return by_key


def check(document: Document) -> None:
    try:
        matches = found(document)
    except BadInput as refused:
        assert refused.field == "pattern", refused
        assume(False)
    assert matches == expected(document)


def check_types(types: tuple[str, ...], pattern: str, contiguity: str, consume: str, within_seconds: int) -> None:
    """An event of each type, one a second."""
    events = [{"id": f"e{at}", "time": float(at), "type": type_, "n": 1, "user": "u"} for at, type_ in enumerate(types)]
    named = {"pattern": pattern, "contiguity": contiguity, "consume": consume, "within_seconds": within_seconds}
    check({**named, "define": {}, "key": None, "events": events})


@pytest.mark.parametrize(
    "pattern",
    [
        "SEQ(SEQ(A{0,}?; NOT A); B{0,})",
        "SEQ(SEQ(A{0,}?; A{0,}?; NOT B); C{0,})",
        "SEQ(OR(SEQ(A{0,}?; NOT C), B); B{0,})",
        "SEQ(OR(B{0,1}, SEQ(A{0,}; NOT C)); C{0,})",
    ],
)
@pytest.mark.parametrize("consume", ["once", "skip-past-last"])
def test_a_not_at_the_end_of_an_inner_part_holds_up_to_the_next_step(pattern, consume):
    for length in (1, 2, 3):
        for types in itertools.product("ABC", repeat=length):
            check_types(types, pattern, "relaxed", consume, 4)


@pytest.mark.parametrize(
    "pattern",
    [
        "AND(SEQ(A; NOT B; C), B)",
        "AND(SEQ(A; NOT B; C), SEQ(B; NOT C; A))",
        "SEQ(A; AND(SEQ(A; NOT B; C), B{0,}, C{0,1}))",
        "AND(AND(SEQ(A; NOT B; C), C), B{1,}?)",
    ],
)
@pytest.mark.parametrize("consume", ["once", "skip-past-last"])
@pytest.mark.parametrize("contiguity", ["relaxed", "strict"])
def test_a_not_between_steps_within_an_and_holds_whatever_the_other_parts_take(pattern, consume, contiguity):
    for length in (3, 4):
        for types in itertools.product("ABC", repeat=length):
            check_types(types, pattern, contiguity, consume, 9)


FILTERED = [HealthCheck.filter_too_much, HealthCheck.too_slow]


@pytest.mark.thorough
@settings(deadline=None, max_examples=400, suppress_health_check=FILTERED)
@given(documents())
def test_random_documents_match_as_the_reference_has_it(document):
    check(document)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(20))
def test_twenty_thousand_random_documents_match_as_the_reference_has_it(part):
    @seed(part)
    @settings(deadline=None, max_examples=1_000, database=None, suppress_health_check=FILTERED)
    @given(documents())
    def a_thousand(document):
        check(document)

    a_thousand()
