"""Morning ramps on the simulated plant, after a week of such mornings: the loops act before them."""

import numpy as np
import pytest

from controllers.simulation import queues
from controllers.simulation.scenario import add_noise, create_random_generator
from workers.twin.queues import simulate

SEED, NOISE, DAY_MINUTES, WEEK_DAYS = 3, 0.02, 1_440, 7
MORNING = slice(6 * 60 + 30, 8 * 60 + 45)


def build_days(allocation, days, seed, weekend=1.0):
    """Rates by minute: a rise within half an hour at about 07:40, a few minutes earlier or later each day."""
    chance = create_random_generator(seed, "ramp")
    minutes = np.arange(DAY_MINUTES)
    profile = []
    for day in range(days):
        level = 0.75 if day % WEEK_DAYS < 5 else 0.75 * weekend
        rise = 1 / (1 + np.exp(-(minutes - 460 - chance.normal(0, 3)) / 8))
        fall = 1 / (1 + np.exp(-(minutes - 1_110) / 45))
        profile.append(0.12 + level * chance.normal(1, 0.04) * np.clip(rise - fall, 0, 1))
    rates = np.concatenate(profile)[:, None] * allocation.rate[None, :]
    return add_noise(rates, NOISE, create_random_generator(seed, "noise"))


@pytest.fixture(scope="module")
def plant():
    """The plant as the lab's law leaves it at six, the week before, and the morning."""
    allocation = queues.start(1, create_random_generator(SEED, "start"))
    rates = build_days(allocation, 8, SEED)
    now = 7 * DAY_MINUTES + MORNING.start
    return allocation, rates[now - 7 * DAY_MINUTES : now], rates[now : now + MORNING.stop - MORNING.start]


def test_the_loops_act_before_the_ramp(plant):
    allocation, past, morning = plant
    shipped, without_history = simulate(allocation, morning, past), simulate(allocation, morning, past[:0])
    law = queues.OurLaws(queues.BUSY, queues.TOOBUSY)
    lab = queues.simulate(law, allocation, morning, create_random_generator(SEED, "rebalancing"))
    busy, busy_in_lab = ((tally.loads >= queues.BUSY).any(axis=1) for tally in (shipped, lab))
    assert not (busy & ~busy_in_lab).any(), "a minute that the lab's law keeps free of BUSY nodes"
    assert busy.sum() < 0.1 * busy_in_lab.sum()
    assert (shipped.loads >= queues.TOOBUSY).sum() == 0
    assert shipped.points_moved < 1.1 * lab.points_moved
    assert shipped.points_moved < without_history.points_moved


@pytest.mark.thorough
def test_in_a_week_of_ramps_no_minute_is_busy_that_the_lab_s_law_keeps_free():
    allocation = queues.start(1, create_random_generator(SEED, "start"))
    rates = build_days(allocation, 2 * WEEK_DAYS, SEED, weekend=0.45)
    past, week = np.split(rates, 2)
    shipped, law = simulate(allocation, week, past), queues.OurLaws(queues.BUSY, queues.TOOBUSY)
    lab = queues.simulate(law, allocation, week, create_random_generator(SEED, "rebalancing"))
    busy, busy_in_lab = ((tally.loads >= queues.BUSY).any(axis=1) for tally in (shipped, lab))
    assert not (busy & ~busy_in_lab).any() and busy.sum() < 0.1 * busy_in_lab.sum()
    assert shipped.points_moved < 1.1 * lab.points_moved
