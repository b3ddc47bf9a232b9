"""The life of an alert, pure: pending → firing → acknowledged → resolved. Times are seconds since 1970.

| signal | meaning | pending | firing, acknowledged |
|---|---|---|---|
| on | beyond the threshold | fires after `for_seconds` | stays; once acknowledged, fires again in time |
| between | neither beyond nor clear | is dropped | stays, and the clear time starts again |
| off | clear, or its subject is gone | is dropped | ends after `keep_seconds` |
| unknown | not measured | waits | waits: the unknown ends nothing, and starts nothing |

Time that was not watched counts towards no duration: after an unknown check, the clocks of `for` and `keep` continue
from where they were. After a late check they have continued as after one on time: on a plant whose checks are all late,
nothing would ever fire or end otherwise. A wall clock that is set back can't delay anything: a time in the future is
now, and a timeout is at most its own length ahead.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, overload

from workers.alerts.lifecycle.models import Alert

Signal = Literal["on", "between", "off", "unknown"]
CHECK_SECONDS = 2.0  # between two checks
MAX_CHECK_SECONDS = 10.0  # A longer gap was not watched.
# An alert that comes back this soon is the same one; from the third time on it is flapping.
SAME_SECONDS = 600.0
FLAPS = 3
CALM_SECONDS = 300.0
MAX_SNOOZE_SECONDS = 86_400.0
PENDING, FIRING, ACKNOWLEDGED, RESOLVED = "pending", "firing", "acknowledged", "resolved"


@dataclass(frozen=True)
class Terms:
    """The durations that the rule declares."""

    for_seconds: float = 0.0
    keep_seconds: float = 0.0
    acknowledge_seconds: float = 3_600.0


@dataclass(frozen=True)
class Episode:
    """The state of an alert.

    `told_from`: when the steps of this round started to count, None while it notifies nobody; `next_step`:
    the number of steps that are done.
    """

    state: str
    began_at: float
    fired_at: float | None = None
    cleared_since: float | None = None
    resolved_at: float | None = None
    came_back: int = 0
    returned_at: float | None = None
    acknowledged_until: float | None = None
    snoozed_until: float | None = None
    round: int = 0
    next_step: int = 0
    told_from: float | None = None


@dataclass(frozen=True)
class Thresholds:
    """The thresholds: `beyond` fires, `clear` ends; the condition says which side is beyond."""

    beyond: float
    clear: float
    above: bool = True

    def compute_signal(self, value: float | None) -> Signal:
        """Return on at or beyond the one, off before the other; between them neither."""
        if value is None:
            return "unknown"
        sign = 1.0 if self.above else -1.0
        if sign * value >= sign * self.beyond:
            return "on"
        return "off" if sign * value < sign * self.clear or self.beyond == self.clear else "between"


def advance(
    episode: Episode | None, signal: Signal, terms: Terms, now: float, elapsed_seconds: float
) -> Episode | None:
    """Return the episode after this check, `elapsed_seconds` after the one before; None if there is none.

    An episode that has ended is not for this function: see `reopen`.
    """
    if episode is None:
        return _fire(Episode(PENDING, now), terms, now) if signal == "on" else None
    unwatched = elapsed_seconds - CHECK_SECONDS if elapsed_seconds > MAX_CHECK_SECONDS else 0.0
    if signal == "unknown":
        unwatched = max(0.0, elapsed_seconds)
    episode = _adjust_clocks(episode, terms, now, unwatched)
    if episode.state == PENDING:
        if signal in ("between", "off"):
            return None
        return _fire(episode, terms, now) if signal == "on" else episode
    if signal == "off":
        since = now if episode.cleared_since is None else episode.cleared_since
        if now - since >= terms.keep_seconds:
            return replace(episode, state=RESOLVED, cleared_since=since, resolved_at=now, told_from=None)
        # The alert is about to end: a timeout that is due now would notify somebody of what ends automatically.
        return replace(episode, cleared_since=since)
    if signal != "unknown":
        episode = replace(episode, cleared_since=None)
    if episode.acknowledged_until is not None and now >= episode.acknowledged_until:
        episode = replace(episode, state=FIRING, acknowledged_until=None)
    if episode.snoozed_until is not None and now >= episode.snoozed_until:
        episode = replace(episode, snoozed_until=None)
    return episode


def _fire(episode: Episode, terms: Terms, now: float) -> Episode:
    is_due = now - episode.began_at >= terms.for_seconds
    return replace(episode, state=FIRING, fired_at=now, round=1) if is_due else episode


def _adjust_clocks(episode: Episode, terms: Terms, now: float, unwatched: float) -> Episode:
    """Advance the clocks that count watched time by the unwatched time; put none of them in the future."""

    def clip(at: float | None, limit: float) -> float | None:
        return None if at is None else min(at, limit)

    pending, cleared = episode.state == PENDING, episode.cleared_since
    return replace(
        episode,
        began_at=min(now, episode.began_at + unwatched) if pending else episode.began_at,
        cleared_since=None if cleared is None else min(now, cleared + unwatched),
        acknowledged_until=clip(episode.acknowledged_until, now + terms.acknowledge_seconds),
        snoozed_until=clip(episode.snoozed_until, now + MAX_SNOOZE_SECONDS),
        told_from=clip(episode.told_from, now + (CALM_SECONDS if episode.came_back >= FLAPS else 0.0)),
    )


def reopen(ended: Episode, now: float, is_known: bool = False) -> Episode:
    """Reopen an episode that ended recently and fires again.

    This is a new round of the same episode, with an end of its own. A person who had acknowledged it was notified of
    its end, so it is no longer acknowledged. If it flaps, its steps count only after a calm time, so that an alert that
    ends within it notifies nobody. is_known: nobody was notified of the end yet, so no step is repeated.
    """
    came_back = ended.came_back + 1
    calm_seconds = CALM_SECONDS if came_back >= FLAPS else 0.0
    return replace(
        ended,
        state=FIRING,
        acknowledged_until=None,
        resolved_at=None,
        cleared_since=None,
        came_back=came_back,
        returned_at=now,
        round=ended.round + 1,
        next_step=ended.next_step if is_known else 0,
        told_from=now + calm_seconds,
    )


def is_same(ended: Episode, now: float) -> bool:
    """Return whether an episode ended so recently that what fires now is the same episode.

    It is also the same if a clock was set back.
    """
    return ended.resolved_at is not None and now - ended.resolved_at <= SAME_SECONDS


def acknowledge(episode: Episode, terms: Terms, now: float) -> Episode:
    """Acknowledge the alert: nobody else is notified until the timeout."""
    until = now + terms.acknowledge_seconds
    return replace(episode, state=ACKNOWLEDGED, acknowledged_until=until, snoozed_until=None, told_from=None)


def snooze(episode: Episode, until: float) -> Episode:
    """Snooze the alert: nobody is notified until then; an acknowledgement ends, as nobody has the alert."""
    return replace(episode, state=FIRING, acknowledged_until=None, snoozed_until=until, told_from=None)


def withdraw(episode: Episode) -> Episode:
    """End an acknowledgment or a snooze: if somebody was notified before, a new round starts with the first step."""
    return replace(episode, state=FIRING, acknowledged_until=None, snoozed_until=None, told_from=None)


def find_due_steps(
    episode: Episode, suppressed: bool, after_seconds: Sequence[float], now: float, explained: bool = False
) -> tuple[Episode, list[int]]:
    """Return which steps of the escalation are due now, and the episode with these done.

    `after_seconds`: the delay of each step, from the time the alert started to notify. While it is suppressed
    (snoozed, silenced) or acknowledged it notifies nobody; afterwards a new round starts with the first step, unless
    nobody had been notified yet. While it is explained by another it notifies nobody either, but its round goes on
    for SAME_SECONDS: whoever was notified a moment ago still knows of it.
    """
    told = episode.state == FIRING and episode.told_from is not None and 0 <= now - episode.told_from <= SAME_SECONDS
    if explained and told and not suppressed:
        return episode, []
    if suppressed or explained or episode.state != FIRING:
        return replace(episode, told_from=None), []
    if episode.told_from is None:
        round_number = episode.round + (episode.next_step > 0)
        episode = replace(episode, round=round_number, next_step=0, told_from=now)
    assert episode.told_from is not None
    passed = now - episode.told_from
    due = [at for at, seconds in enumerate(after_seconds) if at >= episode.next_step and seconds <= passed]
    return replace(episode, next_step=max([episode.next_step, *(at + 1 for at in due)])), due


TIMES = (
    "began_at",
    "fired_at",
    "returned_at",
    "cleared_since",
    "resolved_at",
    "acknowledged_until",
    "snoozed_until",
    "told_from",
)
COUNTS = ("state", "came_back", "round", "next_step")


def build_episode(alert: Alert) -> Episode:
    """Return the alert as the automaton's episode."""
    times = {name: _convert_to_seconds(getattr(alert, name)) for name in TIMES}
    return Episode(**times, **{name: getattr(alert, name) for name in COUNTS})


def keep(alert: Alert, episode: Episode) -> None:
    """Put the episode on the alert (not yet saved)."""
    before = build_episode(alert)
    for name in COUNTS:
        setattr(alert, name, getattr(episode, name))
    for name in TIMES:
        # An unchanged value keeps its microseconds.
        if getattr(episode, name) != getattr(before, name):
            setattr(alert, name, convert_to_datetime(getattr(episode, name)))


@overload
def convert_to_datetime(seconds: float) -> datetime: ...


@overload
def convert_to_datetime(seconds: None) -> None: ...


def convert_to_datetime(seconds: float | None) -> datetime | None:
    """Return the timestamp of seconds since 1970; None stays None."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _convert_to_seconds(at: datetime | None) -> Any:
    return None if at is None else at.timestamp()
