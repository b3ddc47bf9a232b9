"""Real lag counts, in events and in seconds; phantom lag does not, and the reason is reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.plants.foreign.kafka import group_lag
from workers.plants.foreign.kafka.group_lag import ClusterReading, Group, GroupLags, GroupReader, Offsets
from workers.plants.foreign.kafka.offset_history import GAP_SHARE, MAX_SAMPLES, OffsetHistory

ORDERS = ("orders", 0)


def reading(at, end=100, committed=None, *, begin=0, state="empty", members=(), topics=None):
    topics = {"orders": 2} if topics is None else topics
    offsets = {ORDERS: Offsets(begin, end)} if "orders" in topics else {}
    given = {} if committed is None else {ORDERS: committed}
    return ClusterReading(at, at, topics, offsets, {"billing": Group(state, tuple(members), given)})


def after(*readings):
    lags = GroupLags()
    for each in readings:
        lags.follow(each)
    return lags.list_groups()["billing"]


def steady(seconds, rate, reader_rate, start=0.0):
    """Return a load of `rate` events/s and a reader of `reader_rate`, observed every 2 s."""
    return [
        reading(start + at, round(rate * at), round(min(rate, reader_rate) * at))
        for at in range(0, int(seconds) + 1, 2)
    ]


def test_a_group_that_falls_behind_is_as_many_seconds_behind_as_its_next_event_is_old():
    group = after(*steady(120, 100, 25))
    # After 120 s it has read 3,000 events, which had arrived after 30 s.
    assert group.lag_events == 9_000
    assert group.lag_seconds == pytest.approx(90.0, rel=0.01)
    assert not group.at_least
    assert (group.in_per_second, group.out_per_second) == (pytest.approx(100), pytest.approx(25))
    assert group.clearing_seconds is None


def test_a_group_that_keeps_up_is_not_behind_though_more_came_while_it_was_asked():
    group = after(reading(0.0, 100, 90), reading(2.0, 200, 207))
    assert (group.lag_events, group.lag_seconds) == (0, 0.0)
    assert group.partitions[0].said == ""


def test_a_deleted_topic_is_not_waited_for():
    group = after(reading(0.0, 100, 40), reading(2.0, committed=40, topics={}))
    assert (group.lag_events, group.lag_seconds, group.partitions[0].said) == (None, None, group_lag.GONE)


def test_a_topic_made_anew_is_counted_from_its_own_beginning():
    old = [reading(float(at), 1_000 + at, 900) for at in range(0, 60, 2)]
    fresh = reading(60.0, 10, 900)
    lags = GroupLags()
    for each in [*old, fresh]:
        lags.follow(each)
    group = lags.list_groups()["billing"]
    assert (group.lag_events, group.lag_seconds) == (0, 0.0)
    assert group.partitions[0].said == group_lag.BEYOND
    lags.follow(reading(62.0, 20, 5))  # it was reset, and reads
    lags.follow(reading(64.0, 30, 15))
    group = lags.list_groups()["billing"]
    assert group.lag_events == 15
    assert group.lag_seconds <= 4.0


def test_a_clock_that_is_set_back_makes_no_load_of_a_million_events():
    before, behind = steady(60, 100, 100, start=10_000.0), 3_600.0
    later = [reading(10_060.0 + at - behind, 6_000 + 100 * at, 6_000 + 100 * at) for at in range(2, 121, 2)]
    assert after(*before, later[0]).in_per_second is None  # with two clocks no time is known
    lags = GroupLags()
    for each in [*before, *later]:
        lags.follow(each)
    group = lags.list_groups()["billing"]
    assert (group.in_per_second, group.out_per_second) == (pytest.approx(100), pytest.approx(100))


def test_what_retention_took_is_said_and_not_waited_for():
    group = after(reading(0.0, 100, 40), reading(2.0, 200, 40, begin=90), reading(4.0, 300, 40, begin=290))
    assert (group.lag_events, group.expired_events) == (10, 250)
    assert group.lag_seconds <= 2.0
    assert "250 events expired" in group.partitions[0].said


def test_what_comes_to_a_topic_made_anew_is_not_known_at_first_and_no_0():
    old = [reading(float(at), 1_000 + 50 * at, 1_000 + 50 * at) for at in range(0, 21, 2)]
    fresh = [reading(22.0 + at, 50 * at, 50 * at) for at in range(0, 31, 2)]
    assert after(*old, fresh[0]).in_per_second is None
    assert after(*old, *fresh).in_per_second == pytest.approx(50.0)


def test_a_partition_that_no_member_reads_does_not_count_while_the_group_works():
    member = GroupReader("worker-1", "/10.0.0.7", frozenset({("orders", 1)}))
    group = after(reading(0.0, 100, 40, state="stable", members=[member]))
    assert group.lag_events is None
    by_number = {row.partition: row for row in group.partitions}
    assert by_number[0].said == group_lag.UNREAD
    assert by_number[1].member == "worker-1"
    assert [each.client for each in group.members] == ["worker-1"]


@pytest.mark.parametrize("state", ["preparing rebalancing", "completing rebalancing", "unknown"])
def test_a_topic_that_a_group_has_left_is_no_lag_while_it_rebalances(state):
    left, topics = ("left", 0), {"orders": 1, "left": 1}

    def seen(at, state, members):
        offsets = {ORDERS: Offsets(0, 100), left: Offsets(0, 1_000_000)}
        committed = {ORDERS: 90, left: 10}
        return ClusterReading(at, at, topics, offsets, {"billing": Group(state, members, committed)})

    reader = GroupReader("worker-1", "/10.0.0.7", frozenset({ORDERS}))
    nobody = GroupReader("worker-1", "/10.0.0.7", frozenset())
    stable, rebalances = seen(0.0, "stable", (reader,)), [seen(at, state, (nobody,)) for at in (2.0, 4.0)]
    assert after(stable, *rebalances).lag_events == 10
    assert after(stable, *rebalances, seen(6.0, "stable", (reader,))).lag_events == 10
    assert after(*rebalances).lag_events == 1_000_000  # what it read before is unknown
    assert after(stable, seen(2.0, "empty", ())).lag_events == 1_000_000  # no member reads for it


def test_a_partition_whose_leader_is_away_is_not_called_gone():
    lags = GroupLags()
    lags.follow(reading(0.0, 100, 40))
    lags.follow(ClusterReading(2.0, 2.0, {"orders": 1}, {}, {"billing": Group("empty", (), {ORDERS: 40})}))
    assert lags.list_groups()["billing"].partitions[0].said == group_lag.UNREADABLE
    lags.follow(reading(4.0, 110, 40))
    assert lags.list_groups()["billing"].lag_events == 70
    assert lags.get_history(ORDERS).begins_at == 0.0


ALSO = ("orders", 1)


def of_two(at, ends, committed, *, state="empty", members=()):
    """Return the group of both partitions of orders; a partition whose end is None has no leader now."""
    offsets = {each: Offsets(0, end) for each, end in zip((ORDERS, ALSO), ends, strict=True) if end is not None}
    given = {each: offset for each, offset in zip((ORDERS, ALSO), committed, strict=True) if offset is not None}
    return ClusterReading(at, at, {"orders": 2}, offsets, {"billing": Group(state, members, given)})


def test_a_group_is_as_far_behind_as_it_was_while_a_partition_has_no_leader():
    """Otherwise an alert would resolve, and loops would end tasks, because the others have no backlog."""
    whole = [of_two(float(at), (100 + 50 * at, 50 * at), (0, 50 * at)) for at in range(0, 61, 2)]
    part = [of_two(float(at), (None, 50 * at), (0, 50 * at)) for at in range(62, 71, 2)]
    before, group = after(*whole), after(*whole, *part)
    assert (before.lag_events, before.lag_seconds, before.in_per_second) == (3_100, 60.0, 100.0)
    assert (group.lag_events, group.at_least) == (3_100, True)
    assert group.lag_seconds == pytest.approx(70.0)
    assert (group.in_per_second, group.out_per_second) == (None, None)
    again = after(*whole, *part, of_two(72.0, (3_700, 3_600), (0, 3_600)))
    assert (again.lag_events, again.at_least) == (3_700, True)  # older than the observed history, as before
    assert again.in_per_second == pytest.approx(100.0)


def test_only_what_histories_can_not_give_is_asked_of_the_broker():
    lags = GroupLags()
    lags.follow(reading(0.0, 100, 40))
    [question] = lags.list_questions(0.05, 1.0)
    assert (question.offset, question.after, question.before) == (40, None, 0.0)
    lags.get_history(ORDERS).insert(-50.0, 30)
    [question] = lags.list_questions(0.05, 1.0)
    assert (question.after, question.before) == (-50.0, 0.0)
    lags.get_history(ORDERS).insert(-20.0, 40)
    lags.get_history(ORDERS).insert(-19.5, 60)
    assert lags.list_questions(0.05, 1.0) == []


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


def test_what_the_broker_says_of_the_past_is_put_in_its_place_unless_it_contradicts_the_samples():
    found = history((100.0, 500), (102.0, 520))
    for at, end in ((90.0, 501), (101.0, 499), (103.0, 520)):
        assert not found.insert(at, end)
    assert found.find_append_time(499) is None
    assert found.insert(40.0, 200) and found.insert(70.0, 380)
    assert found.find_append_time(300).at == pytest.approx(40 + 30 * 100.5 / 180)


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
