"""The shipped balance loop during a strong CPU hog, also if shares take effect late."""

import numpy as np
import pytest

from controllers.simulation import balance as scenario
from workers.control.kinds.balance import INTERVAL_SECONDS
from workers.twin import balance

SEED = 3
# The mean delay of hog=4 with decisions every 5 s that know all capacities (decision 16).
BEST_POSSIBLE_SECONDS = 3.5


def run(hog: float, delay: int = 0):
    settings = scenario.SCENARIO.read_settings({"hog": hog})
    events = scenario.generate_arrivals(settings, SEED, None)
    responses, _ = balance.simulate(events, scenario.generate_capacities(settings, SEED), delay)
    return events, responses


@pytest.mark.parametrize("delay", [0, INTERVAL_SECONDS, 2 * INTERVAL_SECONDS])
def test_no_delay_up_to_two_intervals_makes_the_replicas_oscillate(delay):
    _, responses = run(2.0, delay)
    assert np.ptp(responses[-400:], axis=1).max() < 1.0


def test_a_hog_that_takes_all_spare_capacity_is_corrected_before_its_backlog_is_reported():
    events, responses = run(4.0)
    delay = float((responses.max(axis=1) * events).sum() / events.sum())
    assert delay <= 1.3 * BEST_POSSIBLE_SECONDS
