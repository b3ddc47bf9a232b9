"""Searches what changed before each incident, next to the alerter: soon after it fired, and until it ends."""

import logging
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.db import DatabaseError, close_old_connections, connections
from django.db.models import F, Q

from console.incidents.changes import YOUNG, is_due, keep_changes
from workers.alerts.lifecycle.models import Alert

logger = logging.getLogger(__name__)
CHECK_SECONDS = 10.0
MAX_PER_CHECK = 4  # each reads some twenty snapshots
MAX_SEEN = 100  # that may be due
LATELY = timedelta(days=1)  # an end that was missed (the alerter was down) is handled later


class ChangeKeeper:
    """The search for the changes before each incident.

    `step` is one check. `run` checks until it is stopped. Two instances are harmless: they store the same.
    """

    def __init__(self, data: Path) -> None:
        self._data = data

    def step(self, now: datetime) -> int:
        """Examine due incidents; return their number."""
        rows = Alert.objects.select_related("incident").filter(fired_at__isnull=False, under=None)
        lately = rows.filter(Q(resolved_at__isnull=True) | Q(resolved_at__gte=now - LATELY))
        never, at_end = Q(incident__changes_at=None), Q(incident__changes_at__lt=F("resolved_at"))
        young = Q(resolved_at=None) & (Q(fired_at__gt=now - YOUNG) | Q(came_back__gt=0))
        # Each is examined once before any is examined again: the first of many may be the cause of the
        # others.
        longest_ago = (F("incident__changes_at").asc(nulls_first=True), "-fired_at")
        incidents = lately.filter(never | at_end | young).order_by(*longest_ago)[:MAX_SEEN]
        due = [alert for alert in incidents if is_due(alert, now)][:MAX_PER_CHECK]
        for alert in due:
            keep_changes(alert, self._data, now)
        return len(due)

    def run(self, stop: threading.Event) -> None:
        """Check repeatedly; an error is logged once, and the check is tried again."""
        in_trouble = False
        while not stop.wait(CHECK_SECONDS):
            try:
                self.step(datetime.now(UTC))
                in_trouble = False
            except Exception as error:
                if not in_trouble:
                    logger.warning("Changes before incidents can't be searched: %r", error)
                in_trouble = True
                if isinstance(error, DatabaseError):
                    close_old_connections()
        connections.close_all()
