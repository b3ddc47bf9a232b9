"""The modes that planned windows set: overrides of loops that are computed, and never stored."""

from collections.abc import Iterable
from datetime import datetime

from workers.models import Override
from workers.windows import occurrences
from workers.windows.models import PlannedWindow


def list_window_modes(now: datetime, windows: Iterable[PlannedWindow] | None = None) -> list[Override]:
    """Return the modes that planned windows set now, as overrides that are not stored.

    They are in force from the start to the end of the occurrence, so a person's newer override of the mode replaces
    one. windows: the current windows, if they are known.
    """
    modes = []
    for occurrence in occurrences.list_active(now, windows):
        window = occurrence.window
        if window.loop_mode == PlannedWindow.LoopMode.UNCHANGED:
            continue
        override = Override(
            name="mode",
            value=window.loop_mode,
            owner=window.owner,
            reason=f"Planned window {window.name}",
            created_at=occurrence.starts_at,
            expires_at=occurrence.ends_at,
        )
        override.occurrence = occurrence
        modes.append(override)
    return modes
