"""How far a batch reads and how far event time comes: arithmetic of offsets."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queues.errors import BadInput
from workers.pipeline.controls import Controls
from workers.pipeline.offset import Offset, Survey, admit, advance, close

NOW_US = 1_000_000_000
SECOND = 1_000_000


def survey(*entries: tuple[int, int, int], complete: bool = True) -> Survey:
    return Survey(tuple((f"{number}-0", events, newest) for number, events, newest in entries), complete)


ENTRIES = st.lists(st.tuples(st.integers(1, 512), st.integers(0, NOW_US)), max_size=12)
SURVEYS = st.dictionaries(st.sampled_from(["t/n1", "t/n2", "t/n3"]), ENTRIES).map(
    lambda found: {
        name: survey(*((place + 1, *entry) for place, entry in enumerate(entries)))
        for name, entries in found.items()
    }
)


@settings(deadline=None)
@given(SURVEYS, st.integers(0, 3000))
def test_a_batch_takes_whole_blocks_in_order_and_stops_at_the_limit(surveys, limit):
    taken = admit(surveys, limit)
    sizes = [entry[1] for entries in taken.values() for entry in entries]
    for name, entries in taken.items():
        assert entries == surveys[name].entries[: len(entries)]
    everything = sum(entry[1] for item in surveys.values() for entry in item.entries)
    if sum(sizes) < min(limit, everything):
        raise AssertionError("it stopped before the limit")
    assert sum(sizes) < limit + 512


@settings(deadline=None)
@given(SURVEYS, st.integers(1, 3000))
def test_no_container_gets_two_turns_more_than_another_that_still_has_blocks(surveys, limit):
    taken = admit(surveys, limit)
    for name, item in surveys.items():
        count = len(taken.get(name, ()))
        if count < len(item.entries):
            assert all(len(other) <= count + 1 for other in taken.values())


@settings(deadline=None)
@given(st.lists(st.tuples(SURVEYS, st.sets(st.sampled_from(["t/n1", "t/n2"]))), max_size=6))
def test_the_watermark_never_goes_back_and_never_passes_the_slowest_less_the_lateness(steps):
    offset, controls = Offset(), Controls(admit_events_per_batch=700)
    for surveys, holding in steps:
        end = advance(offset, surveys, controls, NOW_US, holding=holding)
        if end is offset:
            continue
        assert end.previous_watermark_us == offset.watermark_us
        if end.watermark_us != offset.watermark_us:
            assert offset.watermark_us is None or end.watermark_us > offset.watermark_us
            assert end.watermark_us <= end.latest_us - controls.lateness_us
            assert all(end.watermark_us <= end.newest_us[name] - controls.lateness_us for name in holding)
        offset = end


def test_a_container_that_is_not_read_to_its_end_holds_the_watermark():
    surveys = {
        "t/n1": survey((1, 10, 100 * SECOND)),
        "t/n2": survey((1, 10, 20 * SECOND), complete=False),
    }
    assert advance(Offset(), surveys, Controls(), NOW_US).watermark_us == 15 * SECOND


def test_a_container_that_is_read_to_its_end_holds_nothing_back():
    surveys = {"t/n1": survey((1, 10, 100 * SECOND)), "t/n2": survey((1, 10, 20 * SECOND))}
    assert advance(Offset(), surveys, Controls(), NOW_US).watermark_us == 95 * SECOND


def test_an_event_from_the_future_counts_as_now():
    end = advance(Offset(), {"t/n1": survey((1, 10, 10**15))}, Controls(), NOW_US)
    assert end.watermark_us == NOW_US - Controls().lateness_us


def test_with_nothing_new_the_offset_is_the_very_same_whatever_the_controls():
    start = Offset(ids={"t/n1": "5-0"})
    assert advance(start, {"t/n1": survey()}, Controls(revision=9, parallelism=7), NOW_US) is start


def test_admitting_nothing_reads_nothing():
    start = Offset()
    surveys = {"t/n1": survey((1, 10, 5))}
    assert advance(start, surveys, Controls(admit_events_per_batch=0), NOW_US) is start


def test_after_a_silence_the_watermark_comes_up_to_the_newest_event_once():
    read = advance(Offset(), {"t/n1": survey((1, 10, 100 * SECOND))}, Controls(), NOW_US)
    closed = close(read)
    assert closed.watermark_us == 100 * SECOND
    assert closed.previous_watermark_us == 95 * SECOND
    assert closed.ranges(read) == {}
    assert close(closed) is closed


def test_an_offset_reads_back_as_it_was_written():
    read = advance(Offset(), {"t/n1": survey((1, 10, 100 * SECOND))}, Controls(revision=3), NOW_US, ["n2"])
    assert Offset.from_document(json.loads(json.dumps(read.to_document()))) == read


def test_an_offset_of_another_version_is_refused_with_what_to_do():
    with pytest.raises(BadInput, match="--reset"):
        Offset.from_document({**Offset().to_document(), "version": 99})


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"parallelism": 0}, "controls.parallelism"),
        ({"admit_events_per_batch": 1.5}, "controls.admit_events_per_batch"),
        ({"lateness_seconds": float("nan")}, "controls.lateness_seconds"),
        ({"speed": 3}, "controls.speed"),
        ([], "controls"),
    ],
)
def test_wrong_controls_are_refused_and_the_field_is_named(document, field):
    with pytest.raises(BadInput) as refused:
        Controls().changed(document)
    assert refused.value.field == field
