"""How far a batch reads and how far event time comes: arithmetic of offsets."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import BadInput
from common.stored_document import replace_fields
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.assignment import MIN_PIECE_EVENTS, divide
from workers.pipeline.dispatch.cursor import Cursor, Entry, Scan, admit, advance, close

NOW_US = 1_000_000_000
SECOND = 1_000_000


def scan(*entries: tuple[int, int, int], complete: bool = True) -> Scan:
    return Scan(tuple(Entry(f"{number}-0", events, newest) for number, events, newest in entries), complete)


ENTRIES = st.lists(st.tuples(st.integers(1, 512), st.integers(0, NOW_US)), max_size=12)
SURVEYS = st.dictionaries(st.sampled_from(["t/n1", "t/n2", "t/n3"]), ENTRIES).map(
    lambda found: {
        name: scan(*((place + 1, *entry) for place, entry in enumerate(entries))) for name, entries in found.items()
    }
)


@settings(deadline=None)
@given(SURVEYS, st.integers(0, 3000))
def test_a_batch_takes_whole_blocks_in_order_and_stops_at_the_limit(scans, limit):
    taken = admit(scans, limit)
    sizes = [entry[1] for entries in taken.values() for entry in entries]
    for name, entries in taken.items():
        assert entries == scans[name].entries[: len(entries)]
    everything = sum(entry[1] for item in scans.values() for entry in item.entries)
    if sum(sizes) < min(limit, everything):
        raise AssertionError("it stopped before the limit")
    assert sum(sizes) < limit + 512


@settings(deadline=None)
@given(SURVEYS, st.integers(1, 3000))
def test_no_container_gets_two_turns_more_than_another_that_still_has_blocks(scans, limit):
    taken = admit(scans, limit)
    for name, item in scans.items():
        count = len(taken.get(name, ()))
        if count < len(item.entries):
            assert all(len(other) <= count + 1 for other in taken.values())


def advanced(start: Cursor, scans: dict[str, Scan], controls: Controls, skipped=(), holding=frozenset()) -> Cursor:
    admitted = admit(scans, controls.admit_events_per_batch)
    return advance(start, scans, admitted, controls, NOW_US, skipped, holding)


@settings(deadline=None)
@given(st.lists(st.tuples(SURVEYS, st.sets(st.sampled_from(["t/n1", "t/n2"]))), max_size=6))
def test_the_watermark_never_goes_back_and_never_passes_the_slowest_less_the_lateness(steps):
    cursor, controls = Cursor(), Controls(admit_events_per_batch=700)
    for scans, holding in steps:
        end = advanced(cursor, scans, controls, holding=holding)
        if end is cursor:
            continue
        assert end.tick == cursor.tick + 1
        if end.watermark_us != cursor.watermark_us:
            assert cursor.watermark_us is None or end.watermark_us > cursor.watermark_us
            assert end.watermark_us <= max(end.newest_us.values()) - controls.lateness_us
            assert all(end.watermark_us <= end.newest_us[name] - controls.lateness_us for name in holding)
        cursor = end


@pytest.mark.parametrize(("is_whole", "seconds"), [(False, 15), (True, 95)])
def test_a_container_that_is_not_read_to_its_end_holds_the_watermark(is_whole, seconds):
    scans = {"t/n1": scan((1, 10, 100 * SECOND)), "t/n2": scan((1, 10, 20 * SECOND), complete=is_whole)}
    assert advanced(Cursor(), scans, Controls()).watermark_us == seconds * SECOND


def test_an_event_from_the_future_counts_as_now():
    end = advanced(Cursor(), {"t/n1": scan((1, 10, 10**15))}, Controls())
    assert end.watermark_us == NOW_US - Controls().lateness_us


def test_with_nothing_new_the_cursor_is_the_very_same_whatever_the_controls():
    start = Cursor(ids={"t/n1": "5-0"})
    assert advanced(start, {"t/n1": scan()}, Controls(revision=9, parallelism=7)) is start


def test_admitting_nothing_moves_nothing():
    start = Cursor()
    assert advanced(start, {"t/n1": scan((1, 10, 5))}, Controls(admit_events_per_batch=0)) is start


def test_after_a_silence_the_watermark_comes_up_to_the_newest_event_once():
    read = advanced(Cursor(), {"t/n1": scan((1, 10, 100 * SECOND))}, Controls())
    closed = close(read, Controls(), NOW_US)
    assert closed.watermark_us == 100 * SECOND
    assert (closed.tick, closed.ids) == (read.tick + 1, read.ids)
    assert close(closed, Controls(), NOW_US) is closed


def test_the_last_event_of_a_clock_that_is_ahead_is_settled_once_its_time_has_come():
    ahead_us = NOW_US + 2 * SECOND
    read = advanced(Cursor(), {"t/n1": scan((1, 10, ahead_us))}, Controls())
    closed = close(read, Controls(), NOW_US + SECOND)
    assert closed.watermark_us == NOW_US and close(closed, Controls(), NOW_US + SECOND) is closed
    later = close(closed, Controls(), NOW_US + 3 * SECOND)
    assert later.watermark_us == ahead_us and close(later, Controls(), NOW_US + 9 * SECOND) is later


def test_what_waits_when_a_stretch_is_closed_is_worked_by_the_controls_of_then():
    read = advanced(Cursor(), {"t/n1": scan((1, 10, 100 * SECOND))}, Controls(revision=1))
    assert close(read, Controls(revision=2), NOW_US).controls.revision == 2


def test_a_cursor_reads_back_as_it_was_written():
    controls = Controls(revision=3, shares={"iap1": 0.25}, criteria={"slow": 2.5})
    read = advanced(Cursor(), {"t/n1": scan((1, 10, 100 * SECOND))}, controls, ["n2"])
    assert Cursor.from_document(json.loads(json.dumps(read.to_document()))) == read


def test_a_cursor_of_a_newer_version_is_refused_with_what_to_do():
    with pytest.raises(BadInput, match=r"newer version.*--reset"):
        Cursor.from_document({**Cursor().to_document(), "version": 99})


SHARES = st.dictionaries(st.sampled_from(["iap1", "iap2", "iap3"]), st.floats(0.05, 1), min_size=1)


@settings(deadline=None)
@given(st.lists(SURVEYS, min_size=1, max_size=6), SHARES)
def test_every_admitted_event_is_in_exactly_one_assignment(steps, shares):
    cursor, read = Cursor(), {}
    for number, scans in enumerate(steps):
        renamed = {
            name: Scan(tuple(Entry(f"{1000 * number + int(e[0][:-2])}-0", *e[1:]) for e in item.entries), True)
            for name, item in scans.items()
        }
        admitted = admit(renamed, 10**6)
        end = advance(cursor, renamed, admitted, Controls(), NOW_US)
        given, owed = divide(cursor, end, admitted, shares, 0.0)
        for container, entries in admitted.items():
            parts = sorted(
                (part for each in given.values() for part in each.parts if part.container == container),
                key=lambda part: int(part.after[:-2]),
            )
            chain = [cursor.ids.get(container, "0-0"), *(part.through for part in parts)]
            assert [part.after for part in parts] == chain[:-1]
            assert chain[-1] == entries[-1][0]
            assert sum(part.events for part in parts) == sum(entry[1] for entry in entries)
        cursor = replace_fields(end, owed=owed) if end is not cursor else end
        read |= given
    assert all(each.events > 0 for each in read.values())


@settings(deadline=None, max_examples=30)
@given(SHARES.filter(lambda shares: len(shares) > 1), st.lists(st.integers(1, 60), min_size=60, max_size=60))
def test_shares_hold_on_average_whatever_the_sizes_of_dispatches(shares, sizes):
    cursor, taken, total = Cursor(), dict.fromkeys(shares, 0), 0
    for number, blocks in enumerate(sizes):
        entries = tuple(Entry(f"{100 * number + place + 1}-0", 512, 5) for place in range(blocks))
        scans = {"t/n1": Scan(entries, True)}
        end = advance(cursor, scans, {"t/n1": entries}, Controls(), NOW_US)
        given, owed = divide(cursor, end, {"t/n1": entries}, shares, 0.0)
        for name, assignment in given.items():
            taken[name] += assignment.events
        total += 512 * blocks
        cursor = replace_fields(end, owed=owed)
    whole = sum(shares.values())
    for name, share in shares.items():
        assert abs(taken[name] - share / whole * total) <= MIN_PIECE_EVENTS + 60 * 512


def test_what_counts_no_event_is_read_all_the_same():
    """Another client has written a block without its number, or with a wrong one: it is to be refused."""
    entries = (Entry("1-0", 0, 5),)
    end = advance(Cursor(), {"t/n1": Scan(entries, True)}, {"t/n1": entries}, Controls(), NOW_US)
    given, _ = divide(Cursor(), end, {"t/n1": entries}, {"iap1": 1.0, "iap2": 1.0}, 0.0)
    (assignment,) = given.values()
    assert [part.through for part in assignment.parts] == ["1-0"]


def test_a_replica_without_a_share_gets_nothing():
    entries = tuple(Entry(f"{place}-0", 512, 5) for place in range(1, 30))
    end = advance(Cursor(), {"t/n1": Scan(entries, True)}, {"t/n1": entries}, Controls(), NOW_US)
    given, _ = divide(Cursor(), end, {"t/n1": entries}, {"iap1": 0.0, "iap2": 1.0}, 0.0)
    assert set(given) == {"iap2"}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"parallelism": 0}, "controls.parallelism"),
        ({"admit_events_per_batch": 1.5}, "controls.admit_events_per_batch"),
        ({"lateness_seconds": float("nan")}, "controls.lateness_seconds"),
        ({"speed": 3}, "controls.speed"),
        ({"shares": {"iap1": 1.5}}, "controls.shares"),
        ({"tasks": {"op": 0}}, "controls.tasks"),
        ({"admit_events_per_second": -1}, "controls.admit_events_per_second"),
        ({"result_bytes": 10}, "controls.result_bytes"),
        ({"criteria": {"slow": float("inf")}}, "controls.criteria"),
        *(({"shed": shed}, "controls.shed") for shed in ({"ab": {"A": 1.1}}, {"ab": 0.5}, {"ab": {"A": None}})),
        ([], "controls"),
    ],
)
def test_wrong_controls_are_refused_and_the_field_is_named(document, field):
    with pytest.raises(BadInput) as refused:
        Controls().apply_changes(document)
    assert refused.value.field == field
