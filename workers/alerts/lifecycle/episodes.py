"""An alert's row as the automaton's episode, and back: seconds there, timestamps here."""

from datetime import UTC, datetime
from typing import Any

from workers.alerts.lifecycle.automaton import Episode
from workers.alerts.lifecycle.models import Alert

TIMES = ("began_at", "fired_at", "cleared_since", "resolved_at", "acknowledged_until", "snoozed_until", "told_from")
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


def convert_to_datetime(seconds: float | None) -> Any:
    """Return the timestamp of seconds since 1970; None stays None."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _convert_to_seconds(at: datetime | None) -> Any:
    return None if at is None else at.timestamp()
