"""Where a rate is expected: what is usual stays inside, what is not lies outside, whatever it is like.

A level that lasts is found where it began; what is usual, a slope and an outburst are none.
"""

import numpy as np
import pytest

from controllers.design.expected_band import DAY_SECONDS, MIN_MINUTES, MINUTE_SECONDS, RateForecaster, change_points

DAYS = 4
AT = np.arange(DAYS * 1440) * MINUTE_SECONDS + 30
SHAPES = {
    "flat": np.full(AT.size, 25.0),
    "by day": 100 + 80 * np.sin(2 * np.pi * AT / DAY_SECONDS),
    "little": 1.5 + np.sin(2 * np.pi * AT / DAY_SECONDS),
}


def band_of(forecaster, at, rates, now):
    forecast = forecaster.predict(at, rates, now, np.zeros(0))
    return forecast and forecast.band


def counted(rates, seed=1):
    return np.random.default_rng(seed).poisson(np.asarray(rates) * MINUTE_SECONDS) / MINUTE_SECONDS


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_usual_is_inside_and_a_stop_or_twice_as_much_is_outside(shape):
    rates, forecaster = counted(SHAPES[shape]), RateForecaster()
    outside, gone, twice = [], [], []
    for minute in range(3 * 1440, AT.size - 16, 197):
        band = band_of(forecaster, AT[: minute + 1], rates[: minute + 1], float(AT[minute] + 30))
        then = minute + 15
        outside.append(band.compute_relative_distance(rates[then]) > 1)
        gone.append(band.compute_relative_distance(0.0))
        twice.append(band.compute_relative_distance(2.2 * SHAPES[shape][then]))
    assert np.mean(outside) <= 0.02
    assert np.median(gone) > 1 and np.median(twice) > 1


def test_a_first_day_is_uncertain_and_a_known_one_is_not():
    rates = counted(SHAPES["flat"])
    young = band_of(RateForecaster(), AT[:120], rates[:120], float(AT[120]))
    old = band_of(RateForecaster(), AT, rates, float(AT[-1]))
    assert young.high - young.low > 3 * (old.high - old.low)
    assert young.days < 0.1 < DAYS - 0.1 < old.days


def test_outbursts_now_and_then_stay_outside():
    """One minute in a hundred: the means of stretches vary with them, the minutes' own spread does not."""
    bursts = counted(SHAPES["flat"]) + np.where(np.arange(AT.size) % 100 == 50, 300.0, 0.0)
    band = band_of(RateForecaster(), AT, bursts, float(AT[-1]))
    assert band.high < 100


def test_of_too_short_a_past_there_is_none():
    assert band_of(RateForecaster(), AT[:3], np.ones(3), float(AT[3])) is None
    assert band_of(RateForecaster(), AT[:0], AT[:0], 0.0) is None


DAY = 1440
TIMES = np.arange(DAY) * 60.0 + 30
SEEDS = range(20)


def correlated(seed, correlation=0.8, deviation=3.0):
    noise = np.random.default_rng(seed).normal(0, deviation * np.sqrt(1 - correlation**2), DAY)
    for minute in range(1, DAY):
        noise[minute] += correlation * noise[minute - 1]
    return np.maximum(25 + noise, 0)


USUAL = {
    "even": lambda seed: counted(np.full(DAY, 25.0), seed),
    "few events": lambda seed: counted(np.full(DAY, 0.05), seed),
    "none": lambda seed: np.zeros(DAY),
    "by day": lambda seed: counted(100 + 80 * np.sin(2 * np.pi * TIMES / 86_400), seed),
    "minutes that follow each other": correlated,
    "heavy tails": lambda seed: np.random.default_rng(seed).lognormal(3, 0.8, DAY),
    "outbursts": lambda seed: counted(np.full(DAY, 25.0), seed) + np.where(TIMES // 60 % 100 == 50, 300.0, 0.0),
    "on and off": lambda seed: np.where(np.random.default_rng(seed).random(DAY) < 0.3, 300.0, 0.0),
}


@pytest.mark.parametrize("shape", USUAL)
def test_what_is_usual_changes_no_level(shape):
    assert [change_points(TIMES, USUAL[shape](seed)) for seed in SEEDS] == [[] for _ in SEEDS]


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.6, 1.4, 2.0, 10.0])
def test_a_level_that_lasts_is_found_where_it_began(factor):
    for seed in SEEDS:
        place = int(np.random.default_rng(seed).integers(MIN_MINUTES, DAY - MIN_MINUTES))
        rates = counted(np.where(np.arange(DAY) < place, 25.0, 25.0 * factor), seed)
        (change,) = change_points(TIMES, rates)
        assert change.at_seconds == pytest.approx(TIMES[place], abs=180)
        assert change.before == pytest.approx(25, rel=0.1)
        assert change.after == pytest.approx(25 * factor, rel=0.1)


def test_each_of_several_is_found_with_the_levels_around_it():
    levels = np.repeat([25.0, 60.0, 10.0], DAY // 3)
    changes = change_points(TIMES, counted(levels, 1))
    assert [round(each.after, -1) for each in changes] == [60, 10]
    assert changes[0].after == pytest.approx(changes[1].before, rel=0.05)
