"""The times that the console accepts: those that every clock, time zone, and database can represent.

The years 1 and 9999 are excluded, which some time zone puts outside of the calendar.
"""

from datetime import UTC, datetime

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
TAKES = "must be a time from 1970 to 2199, such as 2026-01-31T12:00:00Z."


def is_representable(moment: datetime) -> bool:
    """Return whether the time is accepted; without a zone it is taken as UTC."""
    return EARLIEST <= (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) < LATEST
