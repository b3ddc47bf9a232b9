"""Planned windows for tests."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from workers.windows import definitions
from workers.windows.models import PlannedWindow


def plan_window(now: datetime, expected: Sequence[dict[str, str]] = (), **fields: Any) -> PlannedWindow:
    """Plan maintenance of node n1, from 02:00 to 04:00 of each Sunday in Berlin, unless said otherwise."""
    owner = User.objects.get_or_create(username="desk-1")[0]
    given = {"name": "Patches", "kind": "maintenance", "scope": ["node/n1"], "start": "2026-01-04T02:00"}
    given |= {"time_zone": "Europe/Berlin", "minutes": 120, "rrule": "FREQ=WEEKLY;BYDAY=SU", **fields}
    definition = definitions.read_definition(given, expected, now)
    return definitions.add(definitions.build_window(definition, now), owner, "Security patches", now)
