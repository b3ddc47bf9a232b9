"""The Gaussian process that foresees rates, and what is missed then."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from controllers.design.forecast import MAX_POINTS, Forecaster, compute_bucket_averages, compute_missed_events

DAY = 1000.0


def daily(at):
    return 100 + 40 * np.sin(2 * np.pi * at / DAY)


def test_three_days_foretell_the_fourth():
    at = np.arange(0, 3 * DAY, 25.0)
    noise = np.random.default_rng(1).normal(0, 2, at.size)
    ahead = 3 * DAY + np.arange(25, DAY, 50.0)
    mean, deviation = Forecaster(DAY).predict_ahead(at, daily(at) + noise, ahead)
    assert np.abs(mean - daily(ahead)).mean() < 5
    assert (np.abs(mean - daily(ahead)) < 3 * deviation).mean() > 0.95


def test_only_the_newest_points_are_solved_for():
    at = np.arange(0.0, 3 * MAX_POINTS)
    rates = np.where(at < 2 * MAX_POINTS, 1e6, 5.0)
    mean, _ = Forecaster(DAY).predict_ahead(at, rates, at[-1] + np.asarray([1.0, 2.0]))
    assert mean == pytest.approx([5.0, 5.0])


def test_a_past_that_does_not_match_is_refused_by_name():
    with pytest.raises(BadInput) as refused:
        Forecaster(DAY).predict_ahead(np.arange(2.0), np.arange(3.0), np.asarray([9.0]))
    assert refused.value.field == "rates_per_second"


@given(st.integers(1, 200), st.integers(1, 40))
def test_averages_keep_what_came_in_whole_buckets_up_to_now(seconds, bucket):
    rates = np.arange(float(seconds))
    at, means = compute_bucket_averages(rates, bucket)
    whole = seconds // bucket * bucket
    assert means.sum() * bucket == pytest.approx(rates[seconds - whole :].sum() if whole else rates.mean() * bucket)
    assert whole == 0 or at[-1] == seconds - bucket / 2


def test_missed_events_are_those_that_chance_puts_above_the_capacity():
    mean, deviation, counts = np.asarray([100.0, 80.0]), np.asarray([10.0, 1e-9]), np.asarray([4.0, 5.0])
    drawn = np.random.default_rng(2).normal(100, 10, 400_000)
    expected = [np.maximum(0, drawn - 4 * 20).mean() * 60, np.maximum(0, drawn - 5 * 20).mean() * 60]
    missed = compute_missed_events(mean, deviation, counts, 20.0, 60.0)
    assert missed[0] == pytest.approx(expected, rel=0.02)
    assert missed[1] == pytest.approx([0.0, 0.0], abs=1e-6)


def test_an_hour_of_calm_is_no_day_and_its_forecast_stays_in_doubt_until_one_is_seen():
    doubts = []
    for days in (0.1, 0.5, 1.0, 2.0):
        at = np.arange(0, days * DAY, DAY / 40)
        mean, deviation = Forecaster(DAY).predict_ahead(at, np.full(at.size, 50.0), np.asarray([days * DAY]))
        doubts.append(float(deviation[0] / mean[0]))
    assert doubts[0] > 0.25 and doubts[1] == pytest.approx(0.15, abs=0.02) and max(doubts[2:]) < 0.02


@pytest.mark.parametrize("since_days", [0, 20_700], ids=["in the lab", "since 1970"])
def test_a_young_plants_forecast_learns_from_each_quarter_more_that_it_has_seen(since_days):
    """What was fitted to its first four minutes does not count for two days."""
    at = since_days * 86_400.0 + 60.0 * np.arange(1, 61)
    rates = 100 + 40 * np.sin(2 * np.pi * (at - at[0]) / 2_400) + np.random.default_rng(1).normal(0, 2, at.size)
    forecaster, kernels = Forecaster(86_400.0), set()
    for size in range(4, at.size + 1, 4):
        forecaster.predict_ahead(at[:size], rates[:size], at[size - 1 : size] + 300.0)
        kernels.add(str(forecaster._kernels))
    assert 5 <= len(kernels) <= 14
