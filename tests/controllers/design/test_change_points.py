"""A level that lasts is found where it began; what is usual, a slope and an outburst are none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.design.expected_band import MIN_MINUTES, change_points

DAY = 1440
AT = np.arange(DAY) * 60.0 + 30
SEEDS = range(20)


def counted(rates, seed):
    return np.random.default_rng(seed).poisson(np.asarray(rates) * 60) / 60


def correlated(seed, correlation=0.8, deviation=3.0):
    noise = np.random.default_rng(seed).normal(0, deviation * np.sqrt(1 - correlation**2), DAY)
    for minute in range(1, DAY):
        noise[minute] += correlation * noise[minute - 1]
    return np.maximum(25 + noise, 0)


USUAL = {
    "even": lambda seed: counted(np.full(DAY, 25.0), seed),
    "few events": lambda seed: counted(np.full(DAY, 0.05), seed),
    "none": lambda seed: np.zeros(DAY),
    "by day": lambda seed: counted(100 + 80 * np.sin(2 * np.pi * AT / 86_400), seed),
    "minutes that follow each other": correlated,
    "heavy tails": lambda seed: np.random.default_rng(seed).lognormal(3, 0.8, DAY),
    "outbursts": lambda seed: counted(np.full(DAY, 25.0), seed) + np.where(AT // 60 % 100 == 50, 300.0, 0.0),
    "on and off": lambda seed: np.where(np.random.default_rng(seed).random(DAY) < 0.3, 300.0, 0.0),
}


@pytest.mark.parametrize("shape", USUAL)
def test_what_is_usual_changes_no_level(shape):
    assert [change_points(AT, USUAL[shape](seed)) for seed in SEEDS] == [[] for _ in SEEDS]


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.6, 1.4, 2.0, 10.0])
def test_a_level_that_lasts_is_found_where_it_began(factor):
    for seed in SEEDS:
        place = int(np.random.default_rng(seed).integers(MIN_MINUTES, DAY - MIN_MINUTES))
        rates = counted(np.where(np.arange(DAY) < place, 25.0, 25.0 * factor), seed)
        (change,) = change_points(AT, rates)
        assert change.at_seconds == pytest.approx(AT[place], abs=180)
        assert change.before == pytest.approx(25, rel=0.1)
        assert change.after == pytest.approx(25 * factor, rel=0.1)


def test_each_of_several_is_found_with_the_levels_around_it():
    levels = np.repeat([25.0, 60.0, 10.0], DAY // 3)
    changes = change_points(AT, counted(levels, 1))
    assert [round(each.after, -1) for each in changes] == [60, 10]
    assert changes[0].after == pytest.approx(changes[1].before, rel=0.05)


def test_it_is_found_once_its_level_has_lasted():
    rates = counted(np.where(np.arange(DAY) < 600, 25.0, 50.0), 1)
    assert change_points(AT[: 600 + MIN_MINUTES - 2], rates[: 600 + MIN_MINUTES - 2]) == []
    assert len(change_points(AT[: 600 + MIN_MINUTES], rates[: 600 + MIN_MINUTES])) == 1


@given(st.lists(st.floats(0, 1e9), max_size=120))
def test_whatever_came_it_answers_in_order_and_with_different_levels(rates):
    at = np.arange(len(rates)) * 60.0
    changes = change_points(at, np.asarray(rates, dtype=float))
    assert [each.at_seconds for each in changes] == sorted({each.at_seconds for each in changes})
    assert all(each.before != each.after for each in changes)


@given(st.integers(0, 10_000), st.floats(0.01, 1_000))
def test_a_rate_in_another_unit_changes_at_the_same_times(seed, unit):
    """Where its own noise counts, and not that of counts of events."""
    rates = 1e6 + np.random.default_rng(seed).normal(0, 5e4, 200)
    rates[120:] *= 1.6
    found, scaled = change_points(AT[:200], rates), change_points(AT[:200], rates * unit)
    assert [each.at_seconds for each in found] == [each.at_seconds for each in scaled]
