"""A trend comes of several samples, holds while it is in doubt, and is silent while it can't be known."""

from workers.snapshot.rates import TrendWatch


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
