"""The histogram of latencies."""

import math

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from workers.consumer.work_report import HIGHEST_SECONDS, LOWEST_SECONDS, RELATIVE_ERROR, Latencies, bucket_of

in_range = st.floats(LOWEST_SECONDS, HIGHEST_SECONDS)
samples = st.lists(st.tuples(in_range, st.integers(1, 1000)), min_size=1, max_size=60)
shares = st.floats(0.0, 1.0)


def exact_quantile(pairs: list[tuple[float, int]], share: float) -> float:
    needed, seen = max(1, math.ceil(share * sum(count for _, count in pairs))), 0
    for latency_seconds, count in sorted(pairs):
        seen += count
        if seen >= needed:
            return latency_seconds
    raise AssertionError("unreachable")


@hypothesis_settings(deadline=None)
@given(samples, shares)
def test_a_quantile_is_within_the_stated_relative_error(pairs, share):
    answer = Latencies.build(pairs).quantile(share)
    assert answer is not None
    exact = exact_quantile(pairs, share)
    assert abs(answer / exact - 1) <= RELATIVE_ERROR + 1e-9


@hypothesis_settings(deadline=None)
@given(samples, samples, shares)
def test_merged_histograms_answer_like_one_of_all_samples(one, other, share):
    merged = Latencies.build(one).merge(Latencies.build(other))
    assert merged == Latencies.build([*one, *other])
    assert merged.quantile(share) == Latencies.build([*other, *one]).quantile(share)


@hypothesis_settings(deadline=None)
@given(samples, samples)
def test_what_came_since_is_what_was_added(one, other):
    earlier = Latencies.build(one)
    assert earlier.merge(Latencies.build(other)).subtract(earlier) == Latencies.build(other)


def test_an_emptied_histogram_counts_from_zero_again():
    assert Latencies({5: 3}).subtract(Latencies({5: 9, 7: 1})) == Latencies({5: 3})


def test_a_latency_below_zero_is_in_the_lowest_bucket():
    assert bucket_of(-3.0) == 0
    assert bucket_of(math.nan) == 0


def test_no_events_have_no_quantile():
    assert Latencies().quantile(0.95) is None
