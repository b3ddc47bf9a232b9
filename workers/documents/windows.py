"""Planned windows in the snapshot."""

from typing import Annotated

from common.stored_document import Instant, StoredDocument, describe


class PlannedWindowStatus(StoredDocument, frozen=True, kw_only=True):
    """An occurrence of a planned window that is active, or begins within an hour."""

    id: Annotated[int, describe("ID of the window.")]
    name: str
    kind: Annotated[str, describe(values=("maintenance", "freeze", "silence"))]
    scope: Annotated[list[str], describe('Subjects such as "queue/alert"; empty: all alerts that match.')] = []
    loop_mode: Annotated[str, describe("Mode of the loops in the scope.", values=("unchanged", "advise", "hold"))] = (
        "unchanged"
    )
    active: bool = False
    occurrence: Annotated[str, describe("Local start, which identifies the occurrence.")] = ""
    starts_at: Instant
    ends_at: Instant
    silenced: Annotated[int, describe("Number of alerts that the occurrence has silenced.")] = 0
    owner: str = ""
    reason: str = ""
