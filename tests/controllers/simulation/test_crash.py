"""A node stops, and its events are lost or diverted."""

import pytest

from controllers.simulation.crash import SCENARIO


@pytest.mark.parametrize("seed", range(1, 8))
def test_the_thesis_balancer_diverts_all_events_within_one_pull(seed):
    # Seed 3 pulls in the second of the crash.
    found = SCENARIO.run("thesis", SCENARIO.read_settings({}), seed, None).metrics
    assert 0 <= found["seconds_to_divert"] <= 5
    assert (found["events_lost"] == 0) == (found["seconds_to_divert"] == 0)
