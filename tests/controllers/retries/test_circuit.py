"""The retry budget and the circuit breaker of a destination."""

from hypothesis import given
from hypothesis import strategies as st

from controllers.retries.circuit import (
    CLOSED,
    LIMITED,
    MAX_TOKENS,
    MIN_RETRIES_PER_SECOND,
    OPEN,
    PROBES_PER_SECOND,
    PROBES_TO_CLOSE,
    RETRY_SHARE,
    SILENT_SECONDS,
    WINDOW_CALLS,
    DestinationCalls,
    DestinationState,
    admit,
    advance,
    record,
    take_plan_retries,
    take_retries,
)

HEALTHY = DestinationState(at=100.0)
STEPS = st.lists(
    st.tuples(
        st.floats(0.0, 30.0), st.sampled_from(("admit", "take", "record")), st.integers(0, 40), st.integers(0, 40)
    ),
    max_size=40,
)


def succeed(state: DestinationState, count: int, now: float = 100.0) -> DestinationState:
    return record(state, DestinationCalls(count, count, 0), now)


def fail(state: DestinationState, count: int, now: float = 100.0) -> DestinationState:
    return record(state, DestinationCalls(0, 0, count, "503"), now)


def test_a_healthy_destination_limits_no_call_and_no_retry():
    state = succeed(HEALTHY, 50)
    assert admit(state, 100.0)[1] == "all"
    assert take_retries(state, 1_000, 100.0)[1] == 1_000


def test_a_few_failures_at_the_start_say_nothing():
    assert fail(HEALTHY, 9).circuit == CLOSED


def test_from_a_tenth_of_failures_on_retries_take_tokens_and_calls_do_not():
    state = fail(succeed(HEALTHY, 40), 10)
    assert (state.circuit, state.since, state.error) == (LIMITED, 100.0, "503")
    assert admit(state, 100.0)[1] == "all"
    granted = take_retries(state, 1_000, 100.0)[1]
    assert granted == int(MIN_RETRIES_PER_SECOND + RETRY_SHARE * 40)


def test_retries_do_not_pay_for_retries():
    limited = fail(succeed(HEALTHY, 40), 10)
    empty = take_retries(limited, 1_000, 100.0)[0]
    retried = record(empty, DestinationCalls(firsts=0, successes=40, failures=5), 100.0)
    assert take_retries(retried, 1_000, 100.0)[1] == 0


def test_at_half_of_failures_only_probes_are_admitted():
    state = fail(succeed(HEALTHY, 20), 20)
    assert state.circuit == OPEN
    assert admit(state, 100.0)[1] == "none"
    state, first = admit(state, 101.0)
    assert (first, admit(state, 101.0)[1]) == ("probe", "none")
    assert take_retries(state, 1_000, 101.0)[1] == int(2 * MIN_RETRIES_PER_SECOND + RETRY_SHARE * 20)


def test_a_plan_waits_for_an_open_circuit_and_makes_a_test_call_only_where_nobody_else_does():
    state = fail(HEALTHY, 20)
    assert take_plan_retries(state, 100, 99.0 + SILENT_SECONDS) == (state, 0)
    called = admit(state, 99.0 + SILENT_SECONDS)[0]
    assert take_plan_retries(called, 100, 100.0 + SILENT_SECONDS)[1] == 0
    state, granted = take_plan_retries(state, 100, 100.0 + SILENT_SECONDS)
    assert (granted, take_plan_retries(state, 100, 101.0 + SILENT_SECONDS)[1]) == (1, 0)
    limited = fail(succeed(HEALTHY, 40), 10)
    assert take_plan_retries(limited, 1_000, 100.0) == take_retries(limited, 1_000, 100.0)


def test_probes_that_succeed_in_a_row_close_the_circuit_and_the_budget_starts_empty():
    state = fail(HEALTHY, 20)
    state = succeed(state, PROBES_TO_CLOSE - 1)
    state = succeed(fail(state, 1), PROBES_TO_CLOSE - 1)
    assert state.circuit == OPEN
    state = succeed(state, 1)
    assert (state.circuit, state.tokens) == (LIMITED, 0.0)
    assert succeed(state, 50).circuit == CLOSED


def test_the_first_call_after_the_probes_does_not_end_the_limit_on_retries():
    state = succeed(fail(HEALTHY, 20), PROBES_TO_CLOSE)
    state = record(state, DestinationCalls(0, 1, 0), 100.5)
    assert advance(state, 101.0).circuit == LIMITED
    assert take_retries(state, 1_000, 101.0)[1] == 1


def test_a_limited_destination_without_calls_is_healthy_again_after_a_time():
    limited = fail(succeed(HEALTHY, 40), 10)
    assert advance(limited, 130.0).circuit == LIMITED
    assert advance(limited, 500.0).circuit == CLOSED


def test_a_clock_that_is_set_back_by_a_day_stops_no_refill():
    state = take_retries(fail(succeed(HEALTHY, 40), 10), 1_000, 100_000.0)[0]
    back = advance(state, 100.0)
    assert take_retries(advance(back, 103.0), 1_000, 103.0)[1] >= 3


@given(STEPS)
def test_granted_retries_never_exceed_the_share_of_first_successes_and_the_minimum_rate(steps):
    state, now, granted, firsts = HEALTHY, 100.0, 0, 0
    for seconds, step, successes, failures in steps:
        now += seconds
        if step == "record":
            state, firsts = record(state, DestinationCalls(successes, successes, failures), now), firsts + successes
        elif state.circuit != CLOSED and advance(state, now).circuit != CLOSED:
            state, more = take_retries(state, 1_000, now)
            granted += more
    assert granted <= MIN_RETRIES_PER_SECOND * (1 + now - 100.0) + RETRY_SHARE * firsts + 1e-6


@given(STEPS)
def test_the_state_stays_within_its_limits(steps):
    state, now = HEALTHY, 100.0
    for seconds, step, successes, failures in steps:
        now += seconds
        if step == "record":
            state = record(state, DestinationCalls(min(successes, 1), successes, failures), now)
        elif step == "take":
            state = take_retries(state, successes, now)[0]
        else:
            state = admit(state, now)[0]
        assert 0.0 <= state.tokens <= MAX_TOKENS
        assert 0.0 <= state.probes <= 1.0
        assert 0.0 <= state.failures <= state.calls + 1e-9 <= WINDOW_CALLS + 1e-6
        assert (state.since is None) == (state.circuit == CLOSED)


@given(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=50))
def test_an_open_circuit_admits_no_more_probes_than_its_rate(waits):
    state, now, probes = fail(HEALTHY, 20), 100.0, 0
    for seconds in waits:
        now += seconds
        state, admission = admit(state, now)
        probes += admission == "probe"
    assert probes <= 1 + PROBES_PER_SECOND * (now - 100.0)
