"""The age of what waits longest, also by a clock that was set back."""

from queues.nodes.measures import WaitingAges


def gauge(oldest_seconds: float | None, inserted: int, length: int) -> dict:
    return {"oldest_seconds": oldest_seconds, "inserted_blocks": inserted, "length_blocks": length}


def test_the_nodes_clock_is_believed_as_long_as_it_can_be():
    ages = WaitingAges()
    assert ages.observe("alert", gauge(3.5, 10, 4), 100.0) == 3.5
    assert ages.observe("alert", gauge(None, 10, 0), 101.0) is None


def test_what_is_stored_at_an_instant_to_come_grows_older_by_the_watchers_own_clock():
    ages = WaitingAges()
    assert ages.observe("alert", gauge(-600.0, 10, 4), 100.0) == 0.0
    assert ages.observe("alert", gauge(-598.0, 12, 6), 102.0) == 2.0
    assert ages.observe("process", gauge(-598.0, 1, 1), 102.0) == 0.0


def test_when_all_that_was_there_has_gone_the_age_is_that_of_what_came_since():
    ages = WaitingAges()
    ages.observe("alert", gauge(-600.0, 10, 4), 100.0)
    assert ages.observe("alert", gauge(-590.0, 16, 7), 110.0) == 10.0  # nine are gone
    assert ages.observe("alert", gauge(-588.0, 20, 6), 112.0) == 0.0  # fourteen are
    assert ages.observe("alert", gauge(-587.0, 20, 6), 113.0) == 1.0


def test_a_segment_that_was_empty_meanwhile_and_a_server_that_came_back_empty_begin_anew():
    ages = WaitingAges()
    ages.observe("alert", gauge(-600.0, 10, 4), 100.0)
    ages.observe("alert", gauge(None, 10, 0), 105.0)
    assert ages.observe("alert", gauge(-590.0, 11, 1), 110.0) == 0.0
    assert ages.observe("alert", gauge(-580.0, 2, 1), 120.0) == 0.0
