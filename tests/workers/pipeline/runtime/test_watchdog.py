"""The watchdog: ends what hangs, and nothing that only takes its time."""

from tests.workers.pipeline.times import Times
from workers.pipeline.runtime.application import Watchdog


def test_what_finishes_nothing_beyond_the_limit_is_ended_with_the_reason():
    watchdog = Watchdog(90.0, Times())
    watchdog.feed()
    assert watchdog.explain_required_end(90.0) is None
    assert "no progress for 91 s" in watchdog.explain_required_end(91.0)


def test_a_main_thread_that_does_not_come_back_is_ended_and_a_start_is_not():
    times = Times()
    watchdog = Watchdog(90.0, times)
    times.now += 500.0
    assert watchdog.explain_required_end(0.0) is None, "Spark takes its time to start"
    watchdog.feed()
    times.now += 91.0
    assert "main thread has not responded for 91 s" in watchdog.explain_required_end(0.0)
    watchdog.feed()
    assert watchdog.explain_required_end(0.0) is None
