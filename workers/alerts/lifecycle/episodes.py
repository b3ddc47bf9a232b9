"""An alert's row as the automaton sees it, and back: seconds there, timestamps here."""

from datetime import UTC, datetime
from typing import Any

from workers.alerts.lifecycle.automaton import Episode
from workers.alerts.lifecycle.models import Alert

TIMES = (
    "began_at",
    "fired_at",
    "cleared_since",
    "resolved_at",
    "acknowledged_until",
    "snoozed_until",
    "told_from",
)
COUNTS = ("state", "came_back", "round", "next_step")


def episode_of(alert: Alert) -> Episode:
    """The alert as the automaton sees it."""
    times = {name: _seconds(getattr(alert, name)) for name in TIMES}
    return Episode(**times, **{name: getattr(alert, name) for name in COUNTS})


def keep(alert: Alert, episode: Episode) -> None:
    """The episode, put on the alert (not yet saved)."""
    before = episode_of(alert)
    for name in COUNTS:
        setattr(alert, name, getattr(episode, name))
    for name in TIMES:
        # What has not changed keeps its microseconds.
        if getattr(episode, name) != getattr(before, name):
            setattr(alert, name, timestamp(getattr(episode, name)))


def timestamp(seconds: float | None) -> Any:
    """A timestamp of seconds since 1970; None stays None."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _seconds(at: datetime | None) -> Any:
    return None if at is None else at.timestamp()
