"""`match`: the contract's words, case by case, and facts from Trino's and Flink's own tests."""

import json

import pytest

from common.errors import BadInput
from tests.shared_data import DATA
from workers.pipeline.matching.match_request import answer

REFERENCE = DATA / "reference"


def ask(pattern: str, events: object, **more) -> list[list[str]]:
    """events: letters are types, one a second, and ids are the letter and its place; else as given."""
    if isinstance(events, str):
        events = [
            {"id": f"{letter}{place}", "time": float(place), "type": letter, "value": place}
            for place, letter in enumerate(events)
        ]
    document = {"pattern": pattern, "within_seconds": 100, "key": None, "events": events, **more}
    return answer(document)["matches"]


def words(matches: list[list[str]]) -> str:
    return " ".join("".join(ids) for ids in matches)


ONCE = {"consume": "once"}
ROWS = {"consume": "skip-past-last"}
STRICT_ROWS = {"consume": "skip-past-last", "contiguity": "strict"}


@pytest.mark.parametrize(
    ("pattern", "events", "once", "rows"),
    [
        ("A", "ABA", "A0 A2", "A0 A2"),
        ("SEQ(A; B; C)", "AABCBC", "A0B2C3 A1B4C5", "A0B2C3"),
        ("SEQ(A; B; A)", "ABAAB", "A0B1A2", "A0B1A2"),
        ("SEQ(A; B)", "AABB", "A0B2 A1B3", "A0B2"),
        # Quantifiers: as many as come before the next step.
        ("SEQ(A; B+; C)", "ABBCBC", "A0B1B2C3", "A0B1B2C3"),
        ("SEQ(A; B*; C)", "ACABC", "A0C1 A2B3C4", "A0C1 A2B3C4"),
        ("SEQ(A; B{2,3}; C)", "ABCABBBBC", "A0B1B4B5C8", "A0B1B4B5C8"),
        ("SEQ(A*; B)", "BAAB", "B0 A1A2B3", "B0 A1A2B3"),
        ("SEQ(A; B+)", "ABCBA", "A0B1B3", "A0B1B3"),
        ("SEQ(A; B+?)", "ABB", "A0B1", "A0B1"),
        ("SEQ(A; B)+", "ABAB", "A0B1A2B3", "A0B1A2B3"),
        ("A{3}", "AABAAAA", "A0A1A3 A4A5A6", "A0A1A3 A4A5A6"),
        # NOT: nothing of it until the next step takes an event.
        ("SEQ(A; NOT X; B)", "AXBAB", "A3B4", "A3B4"),
        ("SEQ(A+; NOT X; B)", "AXAB", "A0A2B3", "A0A2B3"),
        ("SEQ(A; NOT X; B?; C)", "ABXC", "A0B1C3", "A0B1C3"),
        ("SEQ(A; B; NOT X)", "ABXAB", "A3B4", "A3B4"),
        # AND: any order, in the order they came; OR: every one that matches.
        ("AND(A, B)", "BAAB", "B0A1 A2B3", "B0A1 A2B3"),
        ("AND(A{2}, B)", "ABAB", "A0B1A2", "A0B1A2"),
        ("AND(A, SEQ(B; C))", "BACBCA", "B0A1C2 B3C4A5", "B0A1C2 B3C4A5"),
        ("AND(A, SEQ(A; A; B))", "AAAB", "A0A1A2B3", "A0A1A2B3"),
        ("SEQ(A; AND(B, C); D)", "ACBD", "A0C1B2D3", "A0C1B2D3"),
        ("OR(SEQ(A; B), SEQ(A; C))", "ACAB", "A0C1 A2B3", "A0C1 A2B3"),
        # Nothing there.
        ("SEQ(A; B)", "", "", ""),
        # Taken but not told; anchored.
        ("SEQ(A; {- B -}; C)", "ABC", "A0C2", "A0C2"),
        ("SEQ(^A; B)", "AAB", "A0B2", "A0B2"),
        ("SEQ(A; B$)", "ABAB", "A2B3", "A2B3"),
        ("^B", "AB", "", ""),
        # An OR is what comes first, also where a way before it has begun.
        ("OR(SEQ(A; B; D), SEQ(A; C))", "ABC", "A0C2", "A0C2"),
        ("AND(A, SEQ(A; B))", "ABA", "A0B1A2", "A0B1A2"),
        # What another part takes comes between the steps, too.
        ("AND(SEQ(A; NOT B; C), B)", "ABC", "", ""),
        ("AND(SEQ(A; NOT B; C), B)", "BAC", "B0A1C2", "B0A1C2"),
        ("AND(SEQ(A; NOT B; C), B)", "ACB", "A0C1B2", "A0C1B2"),
        ("SEQ(D; AND(SEQ(A; NOT B; C), B+))", "DBABC", "", ""),
        # A part that prefers to be left out is taken where another keeps the whole from ending.
        ("AND(D, C??)", "CD", "C0D1", "C0D1"),
        ("AND(D, C??)", "DC", "D0", "D0"),
    ],
)
def test_a_pattern_finds_under_either_policy(pattern, events, once, rows):
    assert words(ask(pattern, events, **ONCE)) == once
    assert words(ask(pattern, events, **ROWS)) == rows


@pytest.mark.parametrize(
    ("pattern", "events", "expected"),
    [
        ("SEQ(A; B; C)", "ABXCABC", "A4B5C6"),
        ("SEQ(A; A; B)", "AAAB", "A1A2B3"),
        ("SEQ(A; B+; C)", "ABBXABBC", "A4B5B6C7"),
        ("SEQ(A; B+)", "ABBCB", "A0B1B2"),
        ("SEQ(A; NOT X; B)", "AXBAB", "A3B4"),
        ("SEQ(A; B; NOT X)", "ABXABY", "A3B4"),
        ("AND(A, B)", "AXBBA", "B3A4"),
        # What is left after the forbidden event could not end any more.
        ("SEQ(A; C+; NOT D)", "ACD", ""),
        ("SEQ(A; C+; NOT D)", "ACX", "A0C1"),
    ],
)
def test_strict_contiguity_takes_no_event_in_between(pattern, events, expected):
    assert words(ask(pattern, events, **STRICT_ROWS)) == expected


def test_a_thousand_places_of_an_and_are_filled_where_every_event_suits_all():
    events = [{"id": f"e{place:04}", "time": place / 1000, "v": 1} for place in range(1001)]
    define = {"A": "v > 0", "B": "v > 0"}
    assert ask("AND(A{1000}, B)", events, define=define) == [[event["id"] for event in events]]


def test_an_event_that_a_part_of_an_and_takes_is_forbidden_by_all_that_it_satisfies():
    for policy in (ONCE, ROWS):
        found = [
            words(ask("AND(SEQ(A; NOT B; C), any)", events, define={"any": "type != 'C'"}, **policy))
            for events in ("ABC", "ADC")
        ]
        assert found == ["", "A0D1C2"]


def test_the_window_counts_from_the_first_event_and_includes_its_end():
    events = [{"id": "a", "time": 0.1, "type": "A"}, {"id": "b", "time": 10.1, "type": "B"}]
    for policy in (ONCE, ROWS):
        assert ask("SEQ(A; B)", events, within_seconds=10, **policy) == [["a", "b"]]
        assert ask("SEQ(A; B)", events, within_seconds=9.9, **policy) == []
        assert ask("SEQ(A; B)", events, within_seconds=None, **policy) == [["a", "b"]]


@pytest.mark.parametrize(
    ("times", "within_seconds", "holds"),
    [
        ((0, 1.0000004), 1, False),
        ((0, 4e-7), 0, False),
        ((0, 4e-7), 1e-7, False),
        ((0, 3e-7), 3e-7, True),
        ((0.3, 10.3), 10, True),
        ((0, 5e-324), 0, False),
        ((0, 5e-324), 1e308, True),
        ((-0.0, 0), 0, True),
        ((-1e12, 1e12), 2e12, True),
        ((-1e12, 1e12), 1_999_999_999_999.999, False),
        ((1e12 - 1, 1e12), 0.999999, False),
        ((0, 0.30000000000000004), 0.3, False),
    ],
)
def test_a_window_is_exact_however_near_or_far_the_times_are(times, within_seconds, holds):
    events = [{"id": kind, "time": time, "type": kind} for kind, time in zip("AB", times, strict=True)]
    for pattern in ("SEQ(A; B)", "AND(A, B)", "SEQ(A; B{1,2})"):
        for policy in (ONCE, ROWS):
            found = ask(pattern, events, within_seconds=within_seconds, **policy)
            assert found == ([["A", "B"]] if holds else []), pattern


@pytest.mark.parametrize("policy", [ONCE, ROWS], ids=["once", "rows"])
def test_what_waits_when_the_events_are_over_completes_in_the_order_it_would_as_time_goes_on(policy):
    events = [
        {"id": f"{kind}{at}", "time": at, "type": kind, "host": host}
        for at, (kind, host) in enumerate(zip("ABBABAB", "xxxyyxx", strict=True))
    ]
    late = {"id": "z", "time": 99, "type": "A", "host": "z"}
    for there in (events, [*events, late]):
        found = ask("SEQ(A; B{1,2})", there, within_seconds=20, key="host", **policy)
        assert words(found) == "A0B1B2 A3B4 A5B6"
        last = ask("SEQ(A; B$)", there, within_seconds=20, key="host", **policy)
        assert words(last) == "A3B4 A5B6"


def test_events_are_taken_in_the_order_of_their_time_and_equal_times_as_they_are_given():
    events = [{"id": "b", "time": 2, "type": "B"}, {"id": "a", "time": 1, "type": "A"}]
    assert ask("SEQ(A; B)", events) == [["a", "b"]]
    same = [{"id": "z", "time": 1, "type": "A"}, {"id": "y", "time": 1, "type": "B"}]
    assert ask("SEQ(A; B)", same) == [["z", "y"]]
    assert ask("SEQ(A; B)", same[::-1]) == []


def test_keys_do_not_mix_and_matches_come_in_the_order_of_completion():
    events = [
        {"id": f"{kind}{at}", "time": at, "type": kind, "host": host}
        for at, (kind, host) in enumerate([("A", 1), ("A", "1"), ("B", "1"), ("B", 1.0)])
    ]
    assert ask("SEQ(A; B)", events, key="host") == [["A1", "B2"], ["A0", "B3"]]


def test_prev_reads_the_event_before_of_the_same_key():
    events = [
        {"id": f"e{at}", "time": at, "type": "v", "value": value, "host": host}
        for at, (value, host) in enumerate([(5, "x"), (9, "y"), (6, "x"), (8, "y"), (7, "x")])
    ]
    define = {"A": "true", "up": "value > prev(value)"}
    document = {"define": define, "key": "host", "consume": "skip-past-last"}
    assert ask("SEQ(A; up+)", events, **document) == [["e0", "e2", "e4"]]
    assert ask("up", events, define={"up": "value > prev(value)"}, key="host") == [["e2"], ["e4"]]
    assert ask("up", [], define={"up": "value > prev(value)"}, key="host") == []


def test_a_value_that_is_missing_satisfies_no_comparison():
    events = [
        {"id": "a", "time": 0, "type": "A"},
        {"id": "b", "time": 1, "type": "B", "level": 3},
        {"id": "c", "time": 2, "type": "B"},
    ]
    assert ask("high", events, define={"high": "level > 1"}) == [["b"]]
    assert ask("low", events, define={"low": "not (level > 1)"}) == []


@pytest.mark.parametrize(
    "condition",
    [
        "level > 1",
        "not (level > 1)",
        "level = 'x'",
        "level in (1, 2)",
        "level not in ('x', 'y')",
        "'x' in level",
        "not ('x' in level)",
        "level > prev(level)",
        "-level > level",
        "level / level = 1",
        "level = true",
    ],
)
def test_a_value_that_is_null_in_every_event_is_unknown_of_whatever_kind_it_is(condition):
    events = [{"id": name, "time": at, "level": None, "known": at} for at, name in enumerate("ab")]
    assert ask("A", events, define={"A": condition}) == []
    assert ask("A", events, define={"A": f"{condition} or known = 1"}) == [["b"]]


BIG = 2**63 - 1


def test_ids_and_stamps_of_64_bits_are_compared_exactly():
    stamps = [1_700_000_000_000_000_000, 1_700_000_000_000_000_001, 1_700_000_000_000_000_003]
    events = [
        {"id": f"e{at}", "time": at, "type": "A", "stamp": stamp, "user": BIG - at % 2, "share": 0.5 if at else 1}
        for at, stamp in enumerate(stamps)
    ]
    assert ask("next", events, define={"next": "stamp - prev(stamp) = 1"}) == [["e1"]]
    assert ask("big", events, define={"big": "user > 9223372036854775806"}) == [["e0"], ["e2"]]
    assert ask("SEQ(A; A)", events, key="user") == [["e0", "e2"]]
    assert ask("half", events, define={"half": "share < 1"}) == [["e1"], ["e2"]]


def test_whole_seconds_in_the_far_future_are_exactly_as_far_apart_as_they_say():
    events = [{"id": "a", "time": 600_000_000_001, "type": "A"}, {"id": "b", "time": 600_000_000_002.0}]
    asked = {"pattern": "SEQ(A; B)", "define": {"B": "time - prev(time) == 1"}, "events": events}
    assert answer({**asked, "within_seconds": 1}) == {"matches": [["a", "b"]]}
    assert answer({**asked, "within_seconds": 0.9}) == {"matches": []}


def test_a_condition_reads_the_time_as_it_was_written():
    events = [{"id": "a", "time": 0.0}, {"id": "b", "time": 0.0000004}]
    assert ask("late", events, define={"late": "time > 0"}) == [["b"]]
    assert ask("late", events, define={"late": "prev(time) < time"}) == [["b"]]


def test_an_attribute_may_be_called_as_a_word_of_python():
    events = [{"id": "a", "time": 0, "from": 3, "is": "x"}, {"id": "b", "time": 1, "from": 7, "is": "from"}]
    assert ask("b", events, define={"b": "from > 5 and is == 'from' and prev(from) = 3"}) == [["b"]]


def test_attributes_may_have_the_names_that_the_matcher_gives_its_own_columns():
    events = [{"id": f"e{at}", "time": at, "group": at, "match_key": f"k{at}"} for at in range(2)]
    assert ask("one", events, define={"one": "group == 1 and match_key == 'k1'"}) == [["e1"]]
    events.append({"id": "e2", "time": 2, "group": 1, "match_key": "k2"})
    assert ask("next", events, define={"next": "prev(group) == 1 and prev(match_key) == 'k1'"}) == [["e2"]]


def test_what_is_no_number_of_an_event_is_unknown_whatever_numbers_others_have():
    define = {"A": "not (value / 0 - value / 0 > 1)"}
    events = [{"id": "e1", "time": 0, "type": "x", "value": 1.0}]
    assert ask("A", events, define=define) == []
    assert ask("A", [*events, {"id": "e2", "time": 1, "type": "x", "value": 2}], define=define) == []


@pytest.mark.parametrize("condition", ["value > 5", "value > prev(value)", "type > 1", "value + 1 < other"])
def test_no_event_is_no_match_whatever_a_condition_reads(condition):
    document = {"pattern": "SEQ(A; B)", "define": {"B": condition}, "events": []}
    assert answer(document) == answer({**document, "key": "host"}) == {"matches": []}


MANY_TYPES = ", ".join(f"T{number}" for number in range(61))
VALUES = {"define": {"B": "v > 1"}, "events": [{"id": "e", "time": 0, "v": 1}, {"id": "f", "time": 1, "v": "2"}]}
WRONG = [
    *(({"pattern": text}, "pattern") for text in ("SEQ(A; B", None, "A*?", "{- A -}", f"OR({MANY_TYPES})")),
    ({"pattern": f"SEQ({';'.join(['A?'] * 600)})"}, "pattern"),
    ({"pattern": f"SEQ(A; NOT X; {';'.join(['B'] * 900)})"}, "pattern"),
    ({"define": {"Z": "true"}}, "define.Z"),
    *(({"define": document}, "define") for document in (["B"], [], "", 0, False)),
    *(({"define": {"B": text}}, "define.B") for text in ("value >", "speed > 1", "type > 1", "", 0, False, None)),
    *(({"contiguity": word}, "contiguity") for word in ("loose", None)),
    ({"consume": "twice"}, "consume"),
    *(({"within_seconds": seconds}, "within_seconds") for seconds in (-1, "10", True)),
    *(({"key": key}, "key") for key in (3, "host")),
    ({"colour": "red"}, "colour"),
    ({"events": None}, "events"),
    ({"events": [1]}, "events[0]"),
    ({"events": [{"id": 1, "time": 0}]}, "events[0].id"),
    *(({"events": [{"id": "e", **time}]}, "events[0].time") for time in ({}, {"time": "0"}, {"time": 10**400})),
    ({"events": [{"id": "e", "time": 0, "type": 3}]}, "events[0].type"),
    ({"events": [{"id": "e", "time": 0}, {"id": "e", "time": 1}]}, "events[1].id"),
    (VALUES, "events"),
]
# Also without any event.
ALWAYS_WRONG = [({"define": {"B": text}}, "define.B") for text in ("'a' > 5", "prev(value) > 1 or")]
PLAINLY_WRONG = ({"pattern": "SEQ(A; B"}, {"key": 3}, {"colour": "red"}, {"define": {"Z": "true"}})
ALWAYS_WRONG += [case for case in WRONG if case[0] in PLAINLY_WRONG]


@pytest.mark.parametrize(
    ("change", "field"), [*WRONG, *(({**change, "events": []}, field) for change, field in ALWAYS_WRONG)]
)
def test_what_is_wrong_is_refused_by_the_name_of_its_field(change, field):
    events = [{"id": "a", "time": 0, "type": "A", "value": 1}]
    good = {"pattern": "SEQ(A; B)", "within_seconds": 1, "events": events}
    with pytest.raises(BadInput) as refused:
        answer({**good, **change})
    assert refused.value.field == field


def reference(name: str) -> list[dict]:
    path = REFERENCE / f"{name}.json"
    return json.loads(path.read_text())["cases"] if path.exists() else []


ROW_PATTERNS = {  # as ours are written
    "A B+ C+": "SEQ(A; B+; C+)",
    "A B C": "SEQ(A; B; C)",
    "B | C | A": "OR(B, C, A)",
    "A {- B+ -} C+": "SEQ(A; {- B+ -}; C+)",
}


@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference cases lie beside the project, in ../shared")
@pytest.mark.parametrize("case", reference("cep_match_recognize_trino"), ids=lambda case: case["id"])
def test_row_patterns_match_as_trinos(case):
    matches: dict[int, list[str]] = {}
    for row, number, label in case["expected"]:
        if label is not None:
            matches.setdefault(number, []).append(str(row))
    events = [{"id": str(row), "time": float(row), "type": "row", "value": value} for row, value in case["rows"]]
    pattern = ROW_PATTERNS.get(case["pattern"], case["pattern"])
    letters = set("ABC") & set(pattern.replace("AND", ""))
    define = {letter: case["define"].get(letter, "true") for letter in letters}
    assert ask(pattern, events, define=define, **STRICT_ROWS) == list(matches.values())


def step_of(part: dict) -> str:
    quantifier = {(True, True): "*", (True, False): "+"}.get(
        (part.get("one_or_more", False), part.get("optional", False)), ""
    )
    return part["var"] + (f"{{{part['times']}}}" if "times" in part else quantifier)


def condition_of(part: dict) -> str:
    ((kind, text),) = part["cond"].items()
    return f"name = '{text}'" if kind == "equals" else f"'{text}' in name"


SKIPPING = [case for case in reference("cep_flink") if case["after_match"] == "SKIP_PAST_LAST_EVENT"]


@pytest.mark.skipif(not SKIPPING, reason="the reference cases lie beside the project, in ../shared")
@pytest.mark.parametrize("case", SKIPPING, ids=lambda case: case["id"])
def test_patterns_that_skip_past_the_last_event_match_as_flinks(case):
    pattern = f"SEQ({'; '.join(map(step_of, case['pattern']))})"
    strict = any(part["contiguity"] == "next" for part in case["pattern"])
    events = [{**event, "time": at, "type": "event"} for at, event in enumerate(case["events"])]
    found = ask(
        pattern,
        events,
        define={part["var"]: condition_of(part) for part in case["pattern"]},
        consume="skip-past-last",
        contiguity="strict" if strict else "relaxed",
    )
    assert sorted(found) == sorted(case["expected"])
