"""How many events a worker claims at once."""

import pytest

from workers.consumer.claim_size import CLAIM_EVENTS, DIVERTED_SECONDS, ORDINARY_SECONDS, ClaimSize


def test_a_queue_that_is_not_fair_is_claimed_in_large_portions_at_any_speed():
    size = ClaimSize(is_fair=False)
    size.record(100, 10.0)
    assert (size.ordinary, size.diverted) == (CLAIM_EVENTS, CLAIM_EVENTS)


def test_the_first_claim_of_a_fair_queue_has_one_block():
    size = ClaimSize(is_fair=True)
    assert (size.ordinary, size.diverted) == (1, 1)


@pytest.mark.parametrize("per_second", [100.0, 1_000.0, 20_000.0])
def test_a_claim_of_a_fair_queue_takes_a_short_time_at_the_speed_of_the_worker(per_second):
    size = ClaimSize(is_fair=True)
    size.record(round(per_second), 1.0)
    assert size.ordinary == pytest.approx(per_second * ORDINARY_SECONDS, abs=0.5)
    assert size.diverted == pytest.approx(per_second * DIVERTED_SECONDS, abs=0.5)


def test_a_claim_has_at_least_one_event_and_at_most_the_general_limit():
    size = ClaimSize(is_fair=True)
    size.record(1, 60.0)
    assert (size.ordinary, size.diverted) == (1, 1)
    size.record(1_000_000, 0.0)
    assert (size.ordinary, size.diverted) == (CLAIM_EVENTS, CLAIM_EVENTS)
