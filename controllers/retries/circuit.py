"""The retry budget and the circuit breaker of one destination, shared by all workers that call it.

A destination is what handlers call: a web server, a database, or a function. When it fails under load, each retry adds
load, and the destination stays down. Two limits prevent that:

- **Retry budget.** A token bucket: each successful first attempt adds `RETRY_SHARE` of a token, each second adds
  `MIN_RETRIES_PER_SECOND`, and a retry takes one token. The budget limits retries only while the destination is not
  healthy, because below `LIMIT_SHARE` of failures there are no more retries than the budget pays for.
- **Circuit breaker.** With `OPEN_SHARE` of failures it opens: then only `PROBES_PER_SECOND` calls are made. After
  `PROBES_TO_CLOSE` successful calls in a row it closes.

    closed → limited   at LIMIT_SHARE of failures
    limited → closed   below half of LIMIT_SHARE, or after a time without calls
    closed, limited → open   at OPEN_SHARE of failures
    open → limited   after PROBES_TO_CLOSE successes in a row

Only failures of the destination count. An event that its handler rejects is no failure of the destination.

Retry plans (`workers.retries`) draw on the same budget. All of their tasks are retries.

All functions are pure: they take the state and the time (Unix seconds), and return the next state.
"""

import math
from typing import Annotated, Final, Literal, NamedTuple

from common.stored_document import Instant, StoredDocument, describe, replace_fields

RETRY_SHARE = 0.1
MIN_RETRIES_PER_SECOND = 1.0
MAX_TOKENS = 50.0
WINDOW_CALLS = 50.0  # calls that the failure share is computed from, the recent ones counting more
WINDOW_SECONDS = 60.0  # after which a call counts 1/e
MIN_CALLS = 10.0  # with fewer, the failure share says little
QUIET_CALLS = 0.5  # below it, there were no calls for some time
LIMIT_SHARE, OPEN_SHARE = 0.1, 0.5
PROBES_PER_SECOND = 2.0
PROBES_TO_CLOSE = 5
SILENT_SECONDS = 10.0
MAX_CLOCK_STEP_SECONDS = 60.0
MAX_ERROR = 200  # characters

Circuit = Literal["closed", "limited", "open"]
CLOSED: Final = "closed"
LIMITED: Final = "limited"
OPEN: Final = "open"
Admission = Literal["all", "probe", "none"]


class DestinationState(StoredDocument, frozen=True, kw_only=True):
    """The state of a destination (`weir:destination:{destination}`)."""

    at: Annotated[Instant, describe("Time of the last computation of the state.")] = 0.0
    circuit: Circuit = CLOSED
    since: Annotated[
        Instant | None, describe("Time since which the destination is not healthy; null: it is healthy.")
    ] = None
    calls: Annotated[float, describe("Number of recent calls, weighted by their age.")] = 0.0
    failures: Annotated[float, describe("Number of these calls that failed.")] = 0.0
    tokens: Annotated[float, describe("Retries that the budget allows now.")] = MIN_RETRIES_PER_SECOND
    probes: Annotated[float, describe("Calls that the open circuit allows now.")] = 0.0
    successes: Annotated[int, describe("Successful calls in a row while the circuit is open.")] = 0
    error: Annotated[str, describe("Text of the last failure.")] = ""

    @property
    def failing_share(self) -> float:
        return self.failures / self.calls if self.calls else 0.0


class DestinationCalls(NamedTuple):
    """Completed calls. firsts: the successes that were no retries."""

    firsts: int = 0
    successes: int = 0
    failures: int = 0
    error: str = ""


def advance(state: DestinationState, now: float) -> DestinationState:
    """Return the state at `now`: tokens and probes are added, and earlier calls count less.

    A clock that was set back by more than MAX_CLOCK_STEP_SECONDS is followed; a smaller step adds nothing.
    """
    elapsed_seconds = max(0.0, now - state.at)
    at = now if now < state.at - MAX_CLOCK_STEP_SECONDS else max(now, state.at)
    left = math.exp(-elapsed_seconds / WINDOW_SECONDS)
    advanced = replace_fields(
        state,
        at=at,
        calls=state.calls * left,
        failures=state.failures * left,
        tokens=min(MAX_TOKENS, state.tokens + MIN_RETRIES_PER_SECOND * elapsed_seconds),
        probes=min(1.0, state.probes + PROBES_PER_SECOND * elapsed_seconds),
    )
    if state.circuit == LIMITED and advanced.calls < QUIET_CALLS <= state.calls:
        return replace_fields(advanced, circuit=CLOSED, since=None, error="")
    return advanced


def admit(state: DestinationState, now: float) -> tuple[DestinationState, Admission]:
    """Return whether a worker may make calls now: all of them, one probe, or none."""
    state = advance(state, now)
    if state.circuit != OPEN:
        return state, "all"
    if state.probes < 1.0:
        return state, "none"
    return replace_fields(state, probes=state.probes - 1.0), "probe"


def take_retries(state: DestinationState, wanted: int, now: float) -> tuple[DestinationState, int]:
    """Return how many of the wanted retries may be made now; they are taken from the budget.

    While the circuit is open, only a worker whose queue a person holds closed makes retries besides probes.
    """
    state = advance(state, now)
    if state.circuit == CLOSED:
        return state, wanted
    granted = min(wanted, math.floor(state.tokens))
    return replace_fields(state, tokens=state.tokens - granted), granted


def take_plan_retries(state: DestinationState, wanted: int, now: float) -> tuple[DestinationState, int]:
    """Return how many tasks a retry plan may send now; they are taken from the budget.

    While the circuit is open, a plan waits, and workers make the test calls. If nobody has called the destination for
    SILENT_SECONDS, the plan makes one: otherwise the circuit would stay open.
    """
    if state.circuit != OPEN:
        return take_retries(state, wanted, now)
    if abs(now - state.at) < SILENT_SECONDS:
        return state, 0
    return replace_fields(advance(state, now), probes=0.0), min(1, wanted)


def record(state: DestinationState, calls: DestinationCalls, now: float) -> DestinationState:
    """Return the state after these calls."""
    state = advance(state, now)
    state = replace_fields(
        state,
        tokens=min(MAX_TOKENS, state.tokens + RETRY_SHARE * calls.firsts),
        error=calls.error[:MAX_ERROR] if calls.failures else state.error,
    )
    return _record_probes(state, calls) if state.circuit == OPEN else _judge(_count(state, calls))


def _record_probes(state: DestinationState, calls: DestinationCalls) -> DestinationState:
    if calls.failures:
        return replace_fields(_count(state, calls), successes=0)
    successes = state.successes + calls.successes
    if successes < PROBES_TO_CLOSE:
        return replace_fields(_count(state, calls), successes=successes)
    # Earlier failures are of the time before. The budget starts empty, so that not all retries come at once.
    return replace_fields(state, circuit=LIMITED, calls=0.0, failures=0.0, tokens=0.0, probes=0.0, successes=0)


def _count(state: DestinationState, calls: DestinationCalls) -> DestinationState:
    total = state.calls + calls.successes + calls.failures
    kept = min(1.0, WINDOW_CALLS / total) if total else 1.0
    return replace_fields(state, calls=total * kept, failures=(state.failures + calls.failures) * kept)


def _judge(state: DestinationState) -> DestinationState:
    if state.calls < MIN_CALLS:
        return state
    share = state.failing_share
    since = state.at if state.since is None else state.since
    if share >= OPEN_SHARE:
        return replace_fields(state, circuit=OPEN, since=since, successes=0, probes=0.0)
    if share >= LIMIT_SHARE:
        return replace_fields(state, circuit=LIMITED, since=since)
    if state.circuit == LIMITED and share < LIMIT_SHARE / 2:
        return replace_fields(state, circuit=CLOSED, since=None, error="")
    return state
