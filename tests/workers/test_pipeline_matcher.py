"""SEQ over events in event-time order: the matcher against a plain reading of the contract's words."""

import orjson
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.pipeline.matcher import SequenceMatcher, masks, match_all
from workers.pipeline.pattern import Pattern, definitions, expression_of


def pattern_of(expression: str, define: dict[str, str] | None = None, within_us: int = 10, **more) -> Pattern:
    read = expression_of(expression, "pattern")
    return Pattern("p", read, definitions(read, define or {}, "define"), "source", within_us, **more)


def holds(predicate, event: dict) -> bool:
    columns = {name: pa.array([event[name]]) for name in predicate.columns}
    return predicate.mask(columns, 1)[0].as_py()


def batch_of(events: list[tuple]) -> pa.RecordBatch:
    """(time in µs, type, value, source)"""
    rows = [
        {"id": f"e{place:04}", "time": time, "type": kind, "value": value, "source": source}
        for place, (time, kind, value, source) in enumerate(events)
    ]
    names = (("time", pa.int64()), ("id", pa.string()), ("type", pa.string()))
    schema = pa.schema([*names, ("value", pa.float64()), ("source", pa.string())])
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def ids(pattern: Pattern, events: list[tuple]) -> list[list[str]]:
    return [[event[1] for event in match.events] for match in match_all(pattern, batch_of(events))]


def plainly(pattern: Pattern, batch: pa.RecordBatch) -> list[list[str]]:
    """The contract word by word: look through all open machines for every event."""
    open_machines: list[list[dict]] = []
    found = []
    for event in sorted(batch.to_pylist(), key=lambda row: (row["time"], row["id"])):
        open_machines = [m for m in open_machines if event["time"] - m[0]["time"] <= pattern.within_us]
        able = [
            machine
            for machine in open_machines
            if machine[0]["source"] == event["source"]
            and holds(pattern.defines[pattern.steps[len(machine)]], event)
        ]
        if able:
            machine = max(able, key=len)  # the first of the longest is the oldest of them
            machine.append(event)
        elif holds(pattern.defines[pattern.steps[0]], event):
            machine = [event]
            open_machines.append(machine)
        else:
            continue
        if len(machine) == len(pattern.steps):
            found.append([each["id"] for each in machine])
            open_machines.remove(machine)
    return found


EVENTS = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from("ABC"), st.integers(0, 3), st.sampled_from("xy")),
    max_size=60,
)
PATTERNS = st.sampled_from(
    [
        pattern_of("SEQ(A; B)"),
        pattern_of("SEQ(A; B; A)"),
        pattern_of("SEQ(A; A; A)", within_us=25),
        pattern_of("SEQ(C)"),
        pattern_of("SEQ(low; high; B)", {"low": "value < 2", "high": "value >= 1 and type != 'C'"}),
    ]
)


@settings(deadline=None)
@given(PATTERNS, EVENTS)
def test_the_matcher_finds_what_a_plain_reading_of_the_contract_finds(pattern, events):
    batch = batch_of(events)
    assert ids(pattern, events) == plainly(pattern, batch)


@settings(deadline=None)
@given(PATTERNS, EVENTS, st.integers(0, 60))
def test_a_matcher_resumed_from_its_json_state_goes_on_as_if_never_stopped(pattern, events, cut):
    batch = batch_of(sorted(events))
    found, matcher = [], SequenceMatcher(pattern)
    for place, (row, mask) in enumerate(
        zip(batch.to_pylist(), masks(pattern, batch).to_pylist(), strict=True)
    ):
        if place == cut:
            matcher.forget(row["time"])
            matcher = SequenceMatcher.resume(pattern, orjson.loads(orjson.dumps(matcher.snapshot())))
        if mask and (match := matcher.take(row["source"], mask, (row["time"], row["id"]))):
            found.append([event[1] for event in match.events])
    assert found == plainly(pattern, batch)


def test_an_event_goes_to_the_most_advanced_machine_and_among_equals_to_the_oldest():
    events = [(0, "A", 0, "x"), (1, "B", 0, "x"), (2, "A", 0, "x"), (3, "C", 0, "x")]
    # The second A completes the machine that waits for it rather than opening another.
    assert ids(pattern_of("SEQ(A; B; A)"), events) == [["e0000", "e0001", "e0002"]]
    twice = [(0, "A", 0, "x"), (1, "A", 0, "x"), (2, "B", 0, "x")]
    assert ids(pattern_of("SEQ(A; B)"), twice) == [["e0000", "e0002"]]


def test_the_window_counts_from_the_first_event_and_includes_its_end():
    pattern = pattern_of("SEQ(A; B)", within_us=10)
    assert ids(pattern, [(0, "A", 0, "x"), (10, "B", 0, "x")]) == [["e0000", "e0001"]]
    assert ids(pattern, [(0, "A", 0, "x"), (11, "B", 0, "x")]) == []


def test_keys_do_not_mix():
    assert ids(pattern_of("SEQ(A; B)"), [(0, "A", 0, "x"), (1, "B", 0, "y")]) == []


def test_matches_in_the_quiet_time_after_one_are_marked_and_the_first_after_it_is_not():
    pattern = pattern_of("SEQ(A)", quiet_us=10)
    matches = match_all(pattern, batch_of([(time, "A", 0, "x") for time in (0, 5, 9, 10, 15)]))
    assert [match.quiet for match in matches] == [False, True, True, False, True]


def test_forgetting_leaves_nothing_of_keys_that_can_no_longer_match():
    pattern = pattern_of("SEQ(A; B)", within_us=10)
    matcher = SequenceMatcher(pattern)
    matcher.take("x", 1, (0, "e1"))
    matcher.forget(10)
    assert matcher.keys
    matcher.forget(11)
    assert not matcher.keys
