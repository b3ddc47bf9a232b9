"""Failed applications are tried again within seconds, and by a new process when this one is of no use."""

from tests.workers.pipeline.times import Times
from workers.pipeline.runtime.hosted import LONG_ENOUGH_SECONDS, MAX_SECONDS, RestartBackoff


def failing(backoff: RestartBackoff, times: Times, after_seconds: float) -> float:
    backoff.record_start()
    times.now += after_seconds
    return backoff.record_failure()


def test_pauses_double_and_stay_below_the_longest_one():
    times = Times()
    backoff = RestartBackoff(times)
    assert backoff.is_due
    assert [failing(backoff, times, 1.0) for _ in range(6)] == [1, 2, 4, 8, 15, 15]
    assert not backoff.is_due
    times.now += MAX_SECONDS
    assert backoff.is_due


def test_what_has_run_long_enough_fails_for_the_first_time():
    times = Times()
    backoff = RestartBackoff(times)
    for _ in range(10):
        assert failing(backoff, times, LONG_ENOUGH_SECONDS + 1) == 1.0
    assert not backoff.gives_up


def test_a_person_who_starts_it_does_not_wait():
    times = Times()
    backoff = RestartBackoff(times)
    failing(backoff, times, 1.0)
    backoff.forget()
    assert backoff.is_due and not backoff.gives_up
