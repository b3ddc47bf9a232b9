"""When events were appended, according to the end offsets of a partition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.plants.foreign.kafka.offset_history import GAP_SHARE, MAX_SAMPLES, OffsetHistory


def history(*samples):
    found = OffsetHistory()
    for at, end in samples:
        found.add(at, end)
    return found


def test_events_between_two_samples_are_taken_to_have_come_evenly():
    appended = history((0.0, 0), (10.0, 100)).find_append_time(50)
    assert appended.at == pytest.approx(5.05)
    assert (appended.after, appended.before) == (0.0, 10.0)


def test_what_came_before_the_history_or_has_not_come_yet_is_not_known():
    found = history((5.0, 10), (6.0, 20))
    assert found.find_append_time(9) is None
    assert found.find_append_time(20) is None
    assert OffsetHistory().find_append_time(0) is None


def test_what_the_broker_says_of_the_past_is_put_in_its_place():
    found = history((100.0, 500), (102.0, 520))
    assert found.insert(40.0, 200)
    assert found.insert(70.0, 380)
    assert found.find_append_time(300).at == pytest.approx(40 + 30 * 100.5 / 180)


def test_what_contradicts_the_samples_is_left_out():
    found = history((100.0, 500), (102.0, 520))
    assert not found.insert(90.0, 501)
    assert not found.insert(101.0, 499)
    assert not found.insert(103.0, 520)
    assert found.find_append_time(499) is None


@given(rates=st.lists(st.integers(0, 2_000), min_size=50, max_size=400), seconds=st.sampled_from([1.0, 2.0, 60.0]))
def test_however_long_it_is_watched_it_stays_small_and_no_event_is_far_from_when_it_came(rates, seconds):
    found, truth, end, now = OffsetHistory(), [], 0, 0.0
    for _ in range(6):
        for rate in rates:
            now += seconds
            truth += [] if not rate else [(end, now - seconds, end + rate, now)]
            end += rate
            found.add(now, end)
    assert len(found._times) <= MAX_SAMPLES
    for first, after, beyond, before in truth[:: max(1, len(truth) // 50)]:
        offset = (first + beyond) // 2
        appended = found.find_append_time(offset)
        if appended is None:
            assert found._ends[0] > offset
        else:
            age = now - (after + before) / 2
            assert abs(appended.at - (after + before) / 2) <= max(3 * seconds, 1.5 * GAP_SHARE * age)
