"""The plant in the past: with `?at=`, pages that show a snapshot show the one that was kept.

The past is read-only: no action is possible on such a page. Every other page shows the present, and says so.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone

from common.errors import BadInput
from common.stored_document import BadDocument
from console.input.form_values import format_iso_time, parse_time
from console.web.web_request import get_web_request
from workers.documents.snapshot import Snapshot
from workers.history.snapshot_archive import find_nearest_times, snapshot_at

# Address names of pages that show one snapshot.
PAGES = frozenset(
    {"overview", "nodes", "node", "queues", "queue", "workers", "worker-host"}
    | {"pipeline", "pipeline-application", "pipeline-operator"}
)
# Pages that are about no instant, or choose it themselves.
TIMELESS = frozenset({"help", "help-page", "timeline", "timeline-table", "timeline-document"})
# Lists of what happened, which can be limited to the time around an instant.
RECORDS = frozenset({"ledger", "audit", "alert-review"})
AROUND = timedelta(minutes=15)


@dataclass(frozen=True)
class PastInstant:
    """A requested instant: the snapshot kept of it, or why there is none, and what is kept around it."""

    at: datetime | None
    snapshot: Snapshot | None = None
    error: str = ""
    before: datetime | None = None
    after: datetime | None = None

    @property
    def query(self) -> str:
        """Return the query that shows the same instant."""
        return "" if self.at is None else "?" + urlencode({"at": format_iso_time(self.at)})

    @property
    def around_query(self) -> str:
        """Return the query that lists what happened within AROUND of the instant."""
        if self.at is None:
            return ""
        return "?" + urlencode({"from": format_iso_time(self.at - AROUND), "to": format_iso_time(self.at + AROUND)})


NOW = PastInstant(None)


def past_of(request: HttpRequest) -> PastInstant | None:
    """Return the instant that a request names; None for now. It is read once a request."""
    noted = get_web_request(request)
    if not hasattr(request, "weir_past"):
        asked = _read_instant(request)
        noted.weir_past = _load_past_instant(asked) if asked and _page(request) in PAGES else None
    past: PastInstant | None = noted.weir_past
    return past


def find_unreachable_instant(request: HttpRequest) -> PastInstant | None:
    """Return the instant that was requested from a page that can only show the present; else None."""
    asked, name = _read_instant(request), _page(request)
    if not asked or name in PAGES | TIMELESS:
        return None
    try:
        return PastInstant(parse_time(asked, "at"))
    except BadInput:
        return None


def _read_instant(request: HttpRequest) -> str:
    return request.GET.get("at", "").strip()


def _page(request: HttpRequest) -> str | None:
    return request.resolver_match.url_name if request.resolver_match else None


def time_shown(request: HttpRequest) -> datetime:
    """Return the instant a page is about: now, unless its address names another."""
    past = past_of(request)
    return past.at if past and past.at else timezone.now()


def _load_past_instant(asked: str) -> PastInstant:
    try:
        at = parse_time(asked, "at")
    except BadInput as error:
        return PastInstant(None, error=str(error))
    try:
        snapshot = snapshot_at(settings.WEIR_DATA, at.timestamp())
    except (BadDocument, OSError):  # of another version, or damaged: the minutes around it are intact
        return PastInstant(at, error="The snapshot of that time can't be read. Choose another time.")
    if snapshot is not None:
        return PastInstant(at, snapshot)
    times = find_nearest_times(settings.WEIR_DATA, at.timestamp())
    near = (None if seconds is None else datetime.fromtimestamp(seconds, UTC) for seconds in times)
    return PastInstant(at, None, "", *near)
