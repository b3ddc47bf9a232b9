"""The pace of a retry plan: additive increase, multiplicative decrease, and a limit on unfinished tasks.

Once a second, `adjust` takes what was heard of the sent tasks and what waits in their queues:

    congested   the median of the last durations (from receipt to end) is above SLOW_SHARE × the shortest median, or
                more messages wait than usual and than the rate sends in WAIT_SECONDS
    failing     more than BACK_OFF_SHARE of the last outcomes failed
    → rate × DECREASE, and no increase for HOLD_SECONDS

    otherwise, once most of what was sent has ended, and unless the retry budget allows less
    → before the first decrease: rate × PROBE
    → afterwards: rate + INCREASE × rate, up to RETURN_SHARE of the rate that was too fast, until PATIENCE_SECONDS later

The rate stays within the limits that a person set. The plan stops by itself if more than STOP_SHARE of the last
outcomes failed, if an alert about the plant fires, if the queues still fill at the lowest rate, or if no outcome is
heard at all.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from common.stored_document import StoredDocument, replace_fields
from workers.retries.items import PaceLimits

START_RATE = 2.0
PROBE, DECREASE, INCREASE = 1.2, 0.7, 0.03
SLOW_SHARE, SLOW_SECONDS = 1.5, 0.02
RETURN_SHARE, PATIENCE_SECONDS, HOLD_SECONDS = 0.85, 300.0, 5.0
WAIT_SECONDS, MIN_WAITING = 0.5, 10
ENDED_WEIGHT = 0.3  # of the last second in the mean of tasks that ended per second
OUTCOMES, MIN_OUTCOMES, DURATIONS, MIN_DURATIONS = 200, 20, 40, 8
BACK_OFF_SHARE, STOP_SHARE = 0.1, 0.3
ENDED_SHARE = 0.5
FLOOR_SECONDS = 60.0
MAX_UNHEARD = 200
MIN_UNFINISHED, UNFINISHED_SECONDS, MAX_UNFINISHED = 10, 5.0, 2_000
MAX_ERROR = 80


@dataclass(frozen=True)
class RetryOutcome:
    """The end of a sent task. error: "" if it succeeded; duration_seconds: from receipt to end, None if unknown."""

    error: str = ""
    duration_seconds: float | None = None


@dataclass(frozen=True)
class Health:
    """The known facts about a plan and its destination at one time.

    outcomes: since the last call. waiting: messages in the queues. alerts: titles of alerts about the plant that fired
    since sending started. unheard: sent tasks that have vanished without an outcome, in all, and heard: those with one.
    is_limited: whether the retry budget allows less than the rate.
    """

    at: float
    outcomes: Sequence[RetryOutcome]
    waiting: int
    alerts: Sequence[str] = ()
    unheard: int = 0
    heard: int = 0
    is_limited: bool = False


class RetryPace(StoredDocument, frozen=True, kw_only=True):
    """The state between two calls; rates are in tasks per second, times in seconds since 1970.

    started_at: when the plan began or continued. errors: of the last outcomes, "" for a success. base_seconds: the
    shortest median duration. usual_waiting: messages that waited before the first task was sent. too_fast: the rate
    that was too high at the last decrease, at `decreased_at`. ended_since: outcomes since the last increase;
    ended_per_second: their moving mean. at_floor_since: since when the lowest rate is too fast. because: why the rate
    was decreased.
    """

    rate: float
    started_at: float
    errors: list[str] = []
    durations: list[float] = []
    base_seconds: float | None = None
    usual_waiting: int | None = None
    too_fast: float | None = None
    decreased_at: float = 0.0
    ended_since: int = 0
    ended_per_second: float = 0.0
    at_floor_since: float | None = None
    because: str = ""


def start(limits: PaceLimits, at: float) -> RetryPace:
    """Return the first pace, also of a plan that a person continues: former outcomes don't stop it again."""
    return RetryPace(rate=_limit(START_RATE, limits), started_at=at)


def adjust(pace: RetryPace, health: Health, limits: PaceLimits) -> RetryPace:
    """Return the pace for the next second."""
    heard = _take_outcomes(pace, health)
    if why := _explain_congestion(heard, health):
        return _decrease(heard, health, limits, why)
    heard = replace_fields(heard, at_floor_since=None, because="")
    is_held = heard.decreased_at and health.at < heard.decreased_at + HOLD_SECONDS
    if is_held or health.is_limited or heard.ended_since < max(1.0, ENDED_SHARE * heard.rate):
        return heard
    if heard.too_fast is None:
        rate = heard.rate * PROBE
    else:
        rate = heard.rate * (1.0 + INCREASE)
        if health.at < heard.decreased_at + PATIENCE_SECONDS:
            rate = min(rate, max(heard.rate, heard.too_fast * RETURN_SHARE))
    return replace_fields(heard, rate=_limit(rate, limits), ended_since=0)


def explain_stop(pace: RetryPace, health: Health) -> str:
    """Return why the plan has to stop, as a sentence without its end; "" if it may continue."""
    failures = [error for error in pace.errors if error]
    if len(pace.errors) >= MIN_OUTCOMES and len(failures) > STOP_SHARE * len(pace.errors):
        common = Counter(failures).most_common(1)[0][0]
        share = round(100 * len(failures) / len(pace.errors))
        return f"{share} % of the last {len(pace.errors)} tasks failed again. The most frequent error is {common}"
    if health.alerts:
        return f"an alert fired: {health.alerts[0]}"
    if pace.at_floor_since is not None and health.at - pace.at_floor_since >= FLOOR_SECONDS:
        return f"the destination was still too slow at the lowest rate ({pace.because})"
    if health.unheard >= MAX_UNHEARD and not health.heard:
        return f"no outcome was heard of {health.unheard} tasks. Check that the workers send task events"
    return ""


def count_allowed(pace: RetryPace) -> int:
    """Return how many tasks may be unfinished at this pace."""
    seconds = UNFINISHED_SECONDS * max(1.0, pace.base_seconds or 0.0)
    return min(MAX_UNFINISHED, max(MIN_UNFINISHED, round(pace.rate * seconds)))


def _take_outcomes(pace: RetryPace, health: Health) -> RetryPace:
    errors = [*pace.errors, *(outcome.error[:MAX_ERROR] for outcome in health.outcomes)][-OUTCOMES:]
    known = [outcome.duration_seconds for outcome in health.outcomes if outcome.duration_seconds is not None]
    durations = [*pace.durations, *known][-DURATIONS:]
    base = pace.base_seconds
    if len(durations) >= MIN_DURATIONS:
        base = min(median(durations), base) if base is not None else median(durations)
    usual = health.waiting if pace.usual_waiting is None else pace.usual_waiting
    return replace_fields(
        pace,
        errors=errors,
        durations=durations,
        base_seconds=base,
        usual_waiting=usual,
        ended_since=pace.ended_since + len(health.outcomes),
        ended_per_second=pace.ended_per_second + ENDED_WEIGHT * (len(health.outcomes) - pace.ended_per_second),
    )


def _explain_congestion(pace: RetryPace, health: Health) -> str:
    if _is_failing(pace):
        return f"{sum(map(bool, pace.errors))} of the last {len(pace.errors)} tasks failed again"
    more = health.waiting - (pace.usual_waiting or 0)
    if more > max(MIN_WAITING, WAIT_SECONDS * pace.rate):
        return f"{more:,} more messages wait than before the plan"
    if pace.base_seconds is not None and len(pace.durations) >= MIN_DURATIONS:
        now = median(pace.durations)
        if now > SLOW_SHARE * pace.base_seconds + SLOW_SECONDS:
            return f"tasks take {now:.2g} s, and took {pace.base_seconds:.2g} s"
    return ""


def _is_failing(pace: RetryPace) -> bool:
    return len(pace.errors) >= MIN_OUTCOMES and sum(map(bool, pace.errors)) > BACK_OFF_SHARE * len(pace.errors)


def _decrease(pace: RetryPace, health: Health, limits: PaceLimits, why: str) -> RetryPace:
    if health.at < pace.decreased_at + HOLD_SECONDS:
        return replace_fields(pace, because=why)
    # Where a queue fills, the rate is above what the destination can take, which is what ended per second.
    too_fast = min(pace.rate, max(pace.ended_per_second, DECREASE * pace.rate))
    is_at_floor = pace.rate <= limits.min_rate and not _is_failing(pace)
    floor_since = pace.at_floor_since if pace.at_floor_since is not None else health.at
    return replace_fields(
        pace,
        rate=_limit(too_fast * DECREASE, limits),
        too_fast=too_fast,
        decreased_at=health.at,
        durations=[],
        ended_since=0,
        at_floor_since=floor_since if is_at_floor else None,
        because=why,
    )


def _limit(rate: float, limits: PaceLimits) -> float:
    return min(limits.max_rate, max(limits.min_rate, rate))
