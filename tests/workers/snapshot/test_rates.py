"""A producer's rate is its own whenever somebody reads it; a trend comes of several samples."""

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from workers.snapshot.rates import LATE_SECONDS, Rates, ReportTimes, TrendWatch

RATE, BLOCK = 20_000.0, 5_000


phases, clocks = st.floats(0, 1), st.floats(-1e9, 1e9)


jitters = st.lists(st.floats(0, 0.2), min_size=30, max_size=30)


class Watched:
    """A producer whose reports take `lags` to be there, read each second from `phase` on."""

    def __init__(self, own_ahead=0.0):
        self.times, self.rates, self.own_ahead = ReportTimes(), Rates(), own_ahead

    def read(self, reports, now):
        """reports: (made, there, events), by one clock; the newest that is there counts."""
        made, _, events = max((each for each in reports if each[1] <= now), default=(None, None, None))
        if made is None:
            return None
        at = self.times.estimate("till", made + self.own_ahead, now)
        return self.rates.get_latest("till") if at is None else self.rates.add("till", events, at)


def steady(lags, seconds=30):
    """Blocks of a producer at RATE, reported each second and a little."""
    return [
        (made, made + lag, BLOCK * int(made * RATE / BLOCK))
        for made, lag in zip([1.02 * number for number in range(seconds)], lags, strict=False)
    ]


@given(phase=phases, ahead=clocks, lags=jitters)
def test_a_steady_rate_is_seen_as_steady(phase, ahead, lags):
    watched, reports = Watched(ahead), steady(lags)
    seen = [watched.read(reports, phase + second) for second in range(29)]
    assert all(rate == pytest.approx(RATE, rel=0.16) for rate in seen[10:])


@given(phase=phases, lags=jitters)
def test_of_one_that_is_silent_nothing_comes_after_some_seconds(phase, lags):
    watched, reports = Watched(), steady(lags, seconds=10)
    seen = [watched.read(reports, phase + second) for second in range(20)]
    assert seen[-1] == 0.0
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(seen[11:]))


@given(phase=phases, lags=jitters, jump=st.floats(-3_600, 3_600))
def test_a_clock_that_is_set_makes_no_rate_that_never_was(phase, lags, jump):
    assume(not -LATE_SECONDS <= jump < 0.0)  # such a jump can't be told from late reports; it is corrected by DRIFT
    watched, reports = Watched(), steady(lags)
    seen = []
    for second in range(29):
        watched.own_ahead = jump if second > 12 else 0.0
        seen.append(watched.read(reports, phase + second))
    assert all(0.4 * RATE <= rate <= 2.5 * RATE for rate in seen[6:])
    assert seen[-1] == pytest.approx(RATE, rel=0.16)


def test_a_first_report_is_of_now_and_one_that_stays_says_nothing_until_it_is_overdue():
    times = ReportTimes()
    assert times.estimate("till", 5.0, 100.0) == 100.0
    assert times.estimate("till", 5.0, 101.0) is None
    assert times.estimate("till", 5.0, 102.0) == 102.0 - LATE_SECONDS
    times.forget_others({"other"})
    assert times.estimate("till", 5.0, 103.0) == 103.0


def watched(values, begin=0.0):
    watch = TrendWatch()
    for second, value in enumerate(values):
        watch.add(value, begin + second)
    return watch


def test_nothing_is_said_before_several_samples():
    assert watched([100.0, 5_000.0]).trend is None
    assert watched(range(0, 10_000, 1_000)).trend is None


def test_a_backlog_that_grows_rises_and_one_that_shrinks_falls():
    assert watched(range(0, 3_000, 100)).trend == "rising"
    assert watched(range(3_000, 0, -100)).trend == "falling"
    assert watched([1_000.0] * 30).trend == "steady"


def test_one_odd_sample_decides_nothing():
    """The newest of thirty rising samples is low: a worker has just taken its events."""
    assert watched([*range(1_000, 3_900, 100), 0]).trend == "rising"


def test_a_trend_that_is_said_ends_later_than_it_begins():
    climb = [1_000.0 + 4 * second for second in range(30)]
    assert watched(climb).trend == "rising"
    slower = [climb[-1] + 2 * second for second in range(30)]
    assert watched([*climb, *slower]).trend == "rising"
    assert watched([1_000.0 + 2 * second for second in range(30)]).trend == "steady"


def test_an_unknown_sample_begins_anew():
    assert watched([*range(0, 3_000, 100), None]).trend is None


def test_a_backlog_that_begins_to_fall_is_said_to_fall_while_it_is_still_larger_than_half_a_minute_ago():
    watch = watched([*range(0, 20_000, 1_000), *range(20_000, 13_000, -500)])
    assert watch.trend == "falling" and watch.change > 0
