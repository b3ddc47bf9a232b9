"""Who is heard, by a clock that only goes forward."""

from hypothesis import given
from hypothesis import strategies as st

from common.own_process import wait_seconds
from queues.nodes.heartbeat import Membership


def watched(looks: list[tuple[float, int]]) -> Membership:
    membership = Membership()
    for now, seq in looks:
        membership = membership.record_sequences({"n1": seq}, now)
    return membership


def test_a_node_that_beats_is_neither_stale_nor_offline():
    membership = watched([(0.2, 1), (1.2, 2), (2.2, 3)])
    assert membership.compute_age_seconds("n1", 2.7) == 0.5
    assert not membership.is_stale("n1", 3.3)


def test_two_missed_beats_are_stale_and_three_are_offline():
    membership = watched([(0.0, 1), (1.0, 2)])
    assert [membership.is_stale("n1", 1.0 + age) for age in (1.5, 2.0, 3.0)] == [False, True, True]
    assert [membership.is_offline("n1", 1.0 + age) for age in (2.0, 2.5, 3.0)] == [False, False, True]


def test_a_check_that_comes_a_little_early_still_sees_the_missed_beat():
    assert watched([(0.0, 1), (1.0, 2)]).is_offline("n1", 3.95)


def test_what_lay_there_before_the_watch_began_has_no_age_until_it_changes():
    membership = watched([(5.0, 80), (6.0, 80)])
    assert membership.compute_age_seconds("n1", 6.0) is None
    assert membership.is_offline("n1", 8.0)
    assert membership.record_sequences({"n1": 81}, 8.5).compute_age_seconds("n1", 8.6) is not None


def test_a_node_never_seen_is_offline():
    assert Membership().is_offline("n1", 0.0)


def test_an_agent_that_starts_again_with_a_smaller_seq_is_heard():
    assert watched([(0.0, 100), (1.0, 101), (5.0, 1)]).compute_age_seconds("n1", 5.0) == 0.0


@given(st.lists(st.floats(0.9, 1.1), min_size=1, max_size=50))
def test_a_node_that_changes_its_seq_at_each_check_is_never_stale(gaps):
    membership, now = Membership(), 0.0
    for seq, gap in enumerate(gaps):
        now += gap
        membership = membership.record_sequences({"n1": seq}, now)
        assert not membership.is_stale("n1", now + 1.1)


@given(st.floats(0, 4e9), st.floats(0, 10), st.floats(0, 0.99))
def test_no_clock_makes_the_beat_wait_long_or_come_twice(wall, since_last, offset):
    wait = wait_seconds(wall, since_last, offset)
    assert 0 <= wait < 2.0
    assert since_last + wait >= 0.5


def test_the_beat_falls_on_the_full_second_and_a_clock_set_back_gives_no_second_beat():
    assert wait_seconds(100.25, 1.0) == 0.75
    assert wait_seconds(99.999, 0.01) > 0.9
    assert wait_seconds(100.9, 1.0, 0.2) == (0.2 - 100.9) % 1.0
