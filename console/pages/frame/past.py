"""The plant as it was: pages that show a snapshot show the one that was kept, when their address says `?at=`.

What is past can be seen, not steered: nobody may do anything on such a page.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone

from console.input.form_values import iso, time_of
from console.web.web_request import WebRequest
from queues.errors import BadInput
from workers.documents.snapshot import Snapshot
from workers.history.snapshot_archive import nearest_seconds, snapshot_at

# The names of the addresses whose page is made of one snapshot.
PAGES = frozenset({"overview", "nodes", "node", "queues", "queue", "workers", "pipeline"})


@dataclass(frozen=True)
class PastInstant:
    """An instant that was asked for: what is kept of it, or why nothing is, and what is kept around it."""

    at: datetime | None
    snapshot: Snapshot | None = None
    error: str = ""
    before: datetime | None = None
    after: datetime | None = None

    @property
    def query(self) -> str:
        """What an address needs to show the same instant."""
        return "" if self.at is None else "?" + urlencode({"at": iso(self.at)})


def past_of(request: HttpRequest) -> PastInstant | None:
    """The instant a request asks for; None when it is about now. Read once a request."""
    noted = cast(WebRequest, request)
    if not hasattr(request, "weir_past"):
        asked = request.GET.get("at", "").strip()
        name = request.resolver_match.url_name if request.resolver_match else None
        noted.weir_past = _past(asked) if asked and name in PAGES else None
    return cast(PastInstant | None, noted.weir_past)


def time_shown(request: HttpRequest) -> datetime:
    """The instant a page is about: now, unless its address names another."""
    past = past_of(request)
    return past.at if past and past.at else timezone.now()


def _past(asked: str) -> PastInstant:
    try:
        at = time_of(asked, "at")
    except BadInput as error:
        return PastInstant(None, error=str(error))
    snapshot = snapshot_at(settings.WEIR_DATA, at.timestamp())
    if snapshot is not None:
        return PastInstant(at, snapshot)
    return PastInstant(at, None, "", *map(_moment, nearest_seconds(settings.WEIR_DATA, at.timestamp())))


def _moment(at_seconds: float | None) -> datetime | None:
    return None if at_seconds is None else datetime.fromtimestamp(at_seconds, UTC)
