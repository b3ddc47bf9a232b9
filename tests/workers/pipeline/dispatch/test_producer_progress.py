"""Event time by the order of producers: it needs no lateness, and no event is late because of it."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from common.stored_document import replace_fields
from queues.publishing.producer_order import OrderMark
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.cursor import Cursor, Entry, Scan, admit, advance
from workers.pipeline.dispatch.producer_progress import (
    MAX_AHEAD,
    UNORDERED_SECONDS,
    OrderedBlock,
    ProducerProgress,
    SessionProgress,
)

SECOND = 1_000_000
NOW_US = 1_000 * SECOND
SESSIONS = {"t/a": "a" * 16, "t/b": "b" * 16}
ONE, TWO = {"t": ("a",)}, {"t": ("a", "b")}
LATE = Controls(lateness_seconds=5.0)


def build_entry(session: str, position: int, time_us: int, is_last: bool = True, number: int = 0) -> Entry:
    mark = OrderMark(SESSIONS[session], position, is_last)
    return Entry(f"{number or time_us}-0", 1, time_us, mark.build_block_id())


def begin(declared, **sessions: SessionProgress) -> Cursor:
    """A cursor after the lateness of the first blocks."""
    trusted = {name: SessionProgress(session, trusted_us=0) for name, session in SESSIONS.items()}
    return Cursor(producers=ProducerProgress(trusted).register(declared, SESSIONS), watermark_us=0)


def dispatch(start: Cursor, declared, *entries: Entry, container: str = "t/n1", complete: bool = True) -> Cursor:
    scans = {container: Scan(entries, complete)}
    return advance(start, scans, {container: entries}, LATE, NOW_US, producers=declared)


def test_one_producer_in_order_needs_no_lateness():
    end = dispatch(begin(ONE), ONE, build_entry("t/a", 0, 100 * SECOND))
    assert end.watermark_us == 100 * SECOND
    assert Cursor.from_document(json.loads(json.dumps(end.to_document()))) == end


def test_a_call_counts_when_all_of_its_blocks_are_dispatched():
    end = dispatch(begin(ONE), ONE, build_entry("t/a", 0, 100 * SECOND), build_entry("t/a", 2, 101 * SECOND))
    assert end.watermark_us == 100 * SECOND
    end = dispatch(end, ONE, build_entry("t/a", 1, 102 * SECOND, is_last=False))
    assert end.watermark_us == 102 * SECOND


def test_the_slowest_producer_counts_but_for_no_longer_than_the_lateness():
    end = dispatch(begin(TWO), TWO, build_entry("t/a", 0, 100 * SECOND), build_entry("t/b", 0, 99 * SECOND))
    assert end.watermark_us == 99 * SECOND
    end = dispatch(end, TWO, build_entry("t/a", 1, 110 * SECOND))
    assert end.watermark_us == 105 * SECOND, "the other one is silent"


def test_a_container_that_is_not_read_to_its_end_still_holds_event_time():
    end = dispatch(begin(ONE), ONE, build_entry("t/a", 0, 100 * SECOND), complete=False)
    assert end.watermark_us == 95 * SECOND


def test_after_a_block_of_an_undeclared_producer_the_lateness_applies_for_a_minute():
    end = dispatch(begin(ONE), ONE, build_entry("t/a", 0, 100 * SECOND), build_entry("t/b", 0, 90 * SECOND))
    assert end.watermark_us == 95 * SECOND
    assert end.producers.unordered_until_us == NOW_US + UNORDERED_SECONDS * SECOND
    assert end.producers.compute_settled_us(ONE, end.producers.unordered_until_us) == 100 * SECOND


def test_a_new_session_counts_after_the_lateness_because_blocks_of_the_old_one_may_be_in_transfer():
    start = begin(ONE)
    start = replace_fields(start, producers=start.producers.register(ONE, {"t/a": "c" * 16}))
    entries = [
        Entry(f"{second}-0", 1, second * SECOND, OrderMark("c" * 16, place, True).build_block_id())
        for place, second in enumerate((100, 104, 105))
    ]
    watermarks = []
    for entry in entries:
        start = dispatch(start, ONE, entry)
        watermarks.append(start.watermark_us // SECOND)
    assert watermarks == [95, 99, 105]


def test_a_lost_block_delays_event_time_by_the_lateness_only():
    end = dispatch(begin(ONE), ONE, build_entry("t/a", 0, 100 * SECOND), build_entry("t/a", 2, 101 * SECOND))
    seen = []
    for place, second in enumerate((104, 106, 110, 112, 113), 3):
        end = dispatch(end, ONE, build_entry("t/a", place, second * SECOND))
        seen.append(end.watermark_us // SECOND)
    assert seen == [100, 101, 105, 112, 113], "the lateness applies until the newest block before the skip is older"


def test_after_a_skip_a_block_that_was_in_transfer_is_not_late_before_the_lateness():
    end = dispatch(begin(ONE), ONE, build_entry("t/a", 0, 100 * SECOND), build_entry("t/a", 2, 101 * SECOND))
    end = dispatch(end, ONE, build_entry("t/a", 3, 106 * SECOND))
    assert end.watermark_us == 101 * SECOND and not end.producers.sessions["t/a"].ahead, "the missing block is skipped"
    end = dispatch(end, ONE, build_entry("t/a", 4, 107 * SECOND))
    assert end.watermark_us == 102 * SECOND, "events of the missing block may be newer than the block that followed it"
    end = dispatch(end, ONE, build_entry("t/a", 5, 111 * SECOND))
    assert end.watermark_us == 111 * SECOND


def test_a_skip_never_lets_the_order_count_earlier():
    ahead = (OrderedBlock(1, 10 * SECOND, False), OrderedBlock(2, 9 * SECOND, True))
    progress = SessionProgress("s", ahead=ahead, trusted_us=12 * SECOND).skip_missing(10 * SECOND, 5 * SECOND)
    assert (progress.next, progress.trusted_us) == (3, 15 * SECOND), "the last block of a call may have older events"
    progress = SessionProgress("s", ahead=ahead, trusted_us=40 * SECOND).skip_missing(10 * SECOND, 5 * SECOND)
    assert progress.trusted_us == 40 * SECOND


def test_a_session_remembers_a_limited_number_of_blocks():
    blocks = [OrderedBlock(place, place * SECOND, True) for place in range(5, MAX_AHEAD + 6)]
    progress = SessionProgress("s", trusted_us=0).add(blocks, 5 * SECOND)
    assert (progress.next, progress.ahead) == (MAX_AHEAD + 6, ())
    assert progress.trusted_us == (MAX_AHEAD + 10) * SECOND


CALLS = st.lists(st.tuples(st.sampled_from(sorted(SESSIONS)), st.lists(st.integers(0, 2), min_size=1, max_size=4)))


@settings(deadline=None, max_examples=300)
@given(CALLS, st.randoms(use_true_random=False), st.integers(1, 6))
def test_no_event_is_late_however_blocks_and_reads_interleave(calls, random, limit):
    """Blocks of one call arrive in any order. Containers are read one after the other while producers publish."""
    stored: list[tuple[str, Entry]] = []  # container, entry
    positions = dict.fromkeys(SESSIONS, 0)
    for number, (session, containers) in enumerate(calls):
        own = []
        for place, container in enumerate(containers):
            time_us = (number + 1) * SECOND + random.randrange(SECOND // 2)
            is_last = place == len(containers) - 1
            own.append((f"t/n{container}", build_entry(session, positions[session] + place, time_us, is_last)))
        positions[session] += len(containers)
        stored += random.sample(own, len(own))
    stored = [(container, entry._replace(entry_id=f"{place + 1}-0")) for place, (container, entry) in enumerate(stored)]
    cursor, arrived, dispatched = begin(TWO), 0, 0
    while dispatched < len(stored):
        scans = {}
        for container in random.sample(["t/n0", "t/n1", "t/n2"], 3):
            arrived = min(len(stored), arrived + random.randrange(3))
            after = int(cursor.ids.get(container, "0-0")[:-2])
            entries = [entry for place, entry in stored[:arrived] if place == container]
            scans[container] = Scan(tuple(entry for entry in entries if int(entry.entry_id[:-2]) > after), True)
        admitted = admit(scans, limit)
        before = cursor.watermark_us
        for entries in admitted.values():
            assert all(entry.newest_us > before for entry in entries)
            dispatched += len(entries)
        cursor = advance(cursor, scans, admitted, Controls(lateness_seconds=900.0), NOW_US, producers=TWO)
    if calls and {session for session, _ in calls} == set(SESSIONS):
        assert cursor.watermark_us > 0
