"""The frame around every page: the rail, the strip, and the user's permissions."""

import secrets
import time
from dataclasses import dataclass
from enum import StrEnum

import redis
from django.http import HttpRequest
from django.urls import reverse

from common.stored_document import BadDocument
from console.accounts.access import Actor, actor_of, user_of
from console.actions.preferences import load_preferences
from console.connections.control_server import load_snapshot
from console.display.states import get_health_word, list_calling_alerts
from console.navigation import Section, get_page_permission, on_rail
from console.pages.frame import past
from console.pages.frame.outage import Outage, find_outage
from console.pages.frame.past import PastInstant
from console.templatetags.live import RailItem
from console.web.web_request import get_web_request
from queues.nodes.node_state import BUSY, NORMAL, OFFLINE
from workers.alerts.lifecycle.open_alerts import open_alerts
from workers.documents.alerts import AlertStatus
from workers.documents.snapshot import NOTHING_SEEN, Snapshot
from workers.models import Plan
from workers.plants.registry import LOCAL
from workers.snapshot.manual_changes import WINDOW_KINDS

# Groups of the rail: label, icon, the derived value (static/js/values/derived.js) of its count, and what it counts.
GROUPS: dict[Section, tuple[str, str, str, str]] = {
    "plant": ("Plant", "overview", "", ""),
    "control": ("Control", "loops", "control_count", "in force or to approve"),
    "incidents": ("Incidents", "alerts", "open_alerts", "open"),
    "history": ("History", "timeline", "", ""),
    "lab": ("Lab", "lab", "", ""),
    "admin": ("Admin", "person", "", ""),
}
TABS = ("plant", "incidents", "control", "history")  # on a phone; the other groups are under More
PLANT_PAGES = ("plant", "plant-tasks", "plant-release", "plant-intervene", "plant-undo", "plant-detach", "plant-remove")
COUNTED = {
    "plans": ("open_proposals", "to approve"),
    "alerts": ("open_alerts", "open"),
    "manual-changes": ("manual_changes", "in force"),
}


class Absence(StrEnum):
    """The reason why a page has no snapshot, in the words of its strip."""

    STARTING = "The plant is starting. Figures appear with the first snapshot."
    UNANSWERED = "The control server is not responding. The state of the plant is unknown."
    UNREAD = "The snapshot can't be read by this version. The state of the plant is unknown."
    UNKEPT = "No snapshot is available for that time. The state of the plant is unknown."
    NO_ROLE = "You need a role to see the plant. Ask an administrator for a role."


@dataclass(frozen=True)
class HealthStrip:
    """The state of the plant in a line; word: read before its sentence.

    Without a snapshot all other fields are None.
    """

    state: str | None
    word: str
    sentence: str
    at: float | None  # Unix time
    seq: int | None


@dataclass(frozen=True)
class PlantChoice:
    """A plant in the menu: its page, its state, and the word for the state."""

    name: str
    url: str
    state: str
    word: str
    stale: bool


@dataclass(frozen=True)
class OpenIncidents:
    """The open incidents: their number, and the severity, page, and start of the one that the strip names."""

    count: int
    severity: str
    words: str
    url: str
    since: float | None


@dataclass(frozen=True)
class StripWindow:
    """The planned window that the strip names: the active one that ends first, else the next one within an hour."""

    title: str
    url: str
    is_active: bool
    at: float  # its end if it is active, else its start, Unix time


@dataclass(frozen=True)
class RailGroup:
    """A group of pages on the rail; its name opens the first of them.

    count: of its pages together; counted: the derived value that updates it, "" for none.
    """

    section: Section
    label: str
    icon: str
    pages: list[RailItem]
    count: int | None
    counted: str
    counted_words: str

    @property
    def url(self) -> str:
        """Return the address of its first page."""
        return self.pages[0].url

    @property
    def has_tab(self) -> bool:
        """Return whether it has a tab on a phone."""
        return self.section in TABS


@dataclass(frozen=True)
class Frame:
    """The frame around every page."""

    plant: str
    shows_plant: bool  # whether the page belongs to one plant
    plants: list[PlantChoice]
    plants_stale: bool
    strip: HealthStrip
    absent: str  # name of the `Absence`; "": there is a snapshot
    outage: Outage | None  # why no data arrives, if it is known
    past: PastInstant | None  # instant that the page shows
    unreached: PastInstant | None  # requested instant, on a page that shows the present
    lists_records: bool  # whether it can list what happened around an instant
    rail: list[RailGroup]
    tabs: list[RailGroup]
    incidents: OpenIncidents | None  # None: there is none, or nothing is known
    window: StripWindow | None
    next_end: float | None  # of the manual changes: the nearest end, Unix time
    hands: int  # manual changes (`workers.snapshot.manual_changes`)
    alerts: list[AlertStatus]
    suppressed: int  # open alerts that need no attention
    user: str
    role: str | None
    limited: bool  # limited to some queues: actions on the whole plant are not offered
    preferences: dict[str, str] | None  # of the user (`console.actions.preferences`); None: never chosen
    submission: str  # of a form that is sent without a script
    can: dict[str, bool]  # by action, with dots as underscores: see console.accounts.access.ACTIONS


def snapshot_of(request: HttpRequest) -> Snapshot | None:
    """Return the snapshot of a request: the newest, or that of the instant in the address.

    It is read once a request, so that a page never shows two instants.
    """
    noted = get_web_request(request)
    if not hasattr(request, "weir_snapshot"):
        noted.weir_snapshot = None
        try:
            if (asked := past.past_of(request)) is not None:
                noted.weir_snapshot, noted.weir_absence = asked.snapshot, Absence.UNKEPT
            else:
                noted.weir_snapshot, noted.weir_absence = load_snapshot(), Absence.STARTING
        except redis.RedisError:
            noted.weir_absence = Absence.UNANSWERED
        except BadDocument:  # the observer has another version, for example during an upgrade
            noted.weir_absence = Absence.UNREAD
    return noted.weir_snapshot


def absence_of(request: HttpRequest) -> Absence | None:
    """Return why there is no snapshot; None if there is one."""
    return get_web_request(request).weir_absence if snapshot_of(request) is None else None


def get_snapshot(request: HttpRequest) -> Snapshot:
    """Return the snapshot; an empty one if there is none."""
    return snapshot_of(request) or NOTHING_SEEN


def frame(request: HttpRequest) -> dict[str, Frame | None]:
    """Return the context `frame` of every template; None for a user who is not logged in."""
    if not getattr(request, "user", None) or not request.user.is_authenticated:
        return {"frame": None}
    actor = actor_of(request)
    may_see = actor.may("plant.view")
    snapshot = snapshot_of(request) if may_see else None
    absence = absence_of(request) if may_see else Absence.NO_ROLE
    was, known = past.past_of(request), list_plants(snapshot)
    live = may_see and was is None
    unreached, match = past.find_unreachable_instant(request), request.resolver_match
    at_query = (was or unreached or past.NOW).query
    # Without a snapshot, the database still knows the present alerts.
    alerts = list_calling_alerts(snapshot.alerts if snapshot else open_alerts() if may_see and was is None else [])
    hands = snapshot.hands if snapshot else []
    proposals = sum(plan.state == Plan.State.PROPOSED for plan in (snapshot.plans if snapshot else ()))
    counts = {"plans": proposals, "alerts": len(alerts), "manual-changes": len(hands)}
    rail = _list_rail_groups(actor, counts, at_query)
    # Only pages of registered plants name a plant; the others belong to this one.
    shown = match.kwargs["name"] if match and match.url_name in PLANT_PAGES else None
    if snapshot is None:
        strip = HealthStrip(None, get_health_word(None), str(absence), None, None)
    else:
        health, word = snapshot.health, get_health_word(snapshot.health)
        strip = HealthStrip(health.state, word, health.sentence, snapshot.at, snapshot.seq)
    return {
        "frame": Frame(
            plant=shown or LOCAL,
            shows_plant=shown is not None,
            plants=known,
            plants_stale=any(plant.stale for plant in known),
            strip=strip,
            absent=absence.name if absence else "",
            outage=find_outage(snapshot, absence != Absence.UNANSWERED, actor, time.time()) if live else None,
            past=was,
            unreached=unreached,
            lists_records=match is not None and match.url_name in past.RECORDS,
            rail=rail,
            tabs=[group for tab in TABS for group in rail if group.section == tab],
            incidents=_find_incidents(alerts),
            window=find_strip_window(snapshot),
            next_end=min((change.until for change in hands if change.until is not None), default=None),
            hands=len(hands),
            alerts=alerts,
            suppressed=len(snapshot.alerts) - len(alerts) if snapshot else 0,
            user=actor.name,
            role=actor.role,
            limited=actor.queues is not None,
            preferences=load_preferences(user_of(request)),
            submission=secrets.token_hex(16),
            # The past can't be changed.
            can=actor.list_permissions() if was is None else dict.fromkeys(actor.list_permissions(), False),
        )
    }


def _list_rail_groups(actor: Actor, counts: dict[str, int], at_query: str) -> list[RailGroup]:
    """Return the groups with the pages that the actor may see.

    Links keep the instant of the past; a page that can't show it says so.
    """
    pages: dict[Section, list[RailItem]] = {section: [] for section in GROUPS}
    for name, label, section in on_rail():
        if actor.may_somewhere(get_page_permission(name)):
            counted, words = COUNTED.get(name, (None, None))
            pages[section].append(RailItem(name, label, reverse(name) + at_query, counts.get(name), counted, words))
    return [
        RailGroup(section, label, icon, pages[section], sum(page.count or 0 for page in pages[section]), *counted)
        for section, (label, icon, *counted) in GROUPS.items()
        if pages[section]
    ]


def _find_incidents(alerts: list[AlertStatus]) -> OpenIncidents | None:
    """Return the strip's words about the open incidents, which are the alerts that no other alert explains."""
    if not alerts:
        return None
    worst = alerts[0]
    if len(alerts) == 1:
        return OpenIncidents(1, worst.severity, f"Incident {worst.id}", reverse("alert", args=[worst.id]), worst.since)
    since = min((row.since for row in alerts if row.since is not None), default=None)
    return OpenIncidents(len(alerts), worst.severity, f"{len(alerts)} incidents", reverse("alerts"), since)


def find_strip_window(snapshot: Snapshot | None) -> StripWindow | None:
    """Return the maintenance or freeze that the strip names; the snapshot has active windows first."""
    rows = [row for row in snapshot.windows if row.kind != "silence"] if snapshot else []
    if not rows:
        return None
    row = rows[0] if rows[0].active else min(rows, key=lambda coming: coming.starts_at)
    title = f"{WINDOW_KINDS[row.kind]} {row.name}"
    at = row.ends_at if row.active else row.starts_at
    return StripWindow(title, reverse("window", args=[row.id]), row.active, at)


def list_plants(snapshot: Snapshot | None) -> list[PlantChoice]:
    """Return this console's plant and the registered plants."""
    here = PlantChoice(LOCAL, reverse("overview"), NORMAL, "this console", stale=False)
    others = snapshot.plants if snapshot else {}
    choices = [here]
    for name, row in others.items():
        url, seen = reverse("plant", args=[name]), row.state == "seen"
        if seen and row.error is None:
            choices.append(PlantChoice(name, url, NORMAL, "seen", stale=False))
        else:
            word = "invalid responses" if seen else "stale" if row.state == "stale" else "not observed yet"
            choices.append(PlantChoice(name, url, BUSY if seen else OFFLINE, word, stale=not seen))
    return choices
