"""The frame around every page: the rail, the strip, and the user's permissions."""

import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

import redis
from django.http import HttpRequest
from django.urls import reverse

from common.stored_document import BadDocument
from console.accounts.access import Actor, actor_of
from console.connections.control_server import load_snapshot
from console.display.state_words import get_health_word
from console.pages.frame import past
from console.pages.frame.declared_page import SECTIONS, load_pages
from console.pages.frame.past import PastInstant
from console.web.web_request import WebRequest
from queues.nodes.node_state import BUSY, NORMAL, OFFLINE
from workers.documents.alerts import AlertStatus
from workers.documents.loops import OverrideStatus
from workers.documents.plants import PlantStatus
from workers.documents.snapshot import NOTHING_SEEN, Snapshot
from workers.models import Plan
from workers.plants.registry import LOCAL

# Declared pages are added to these (`console.pages.frame.declared_page`).
RAIL = (
    ("overview", "Overview", "watch"),
    ("nodes", "Nodes", "watch"),
    ("queues", "Queues", "watch"),
    ("dead-letters", "Dead letters", "watch"),
    ("workers", "Workers", "watch"),
    ("pipeline", "Pipeline", "watch"),
    ("alerts", "Alerts", "watch"),
    ("objectives", "Service levels", "watch"),
    ("loops", "Loops", "steer"),
    ("overrides", "Overrides", "steer"),
    ("plans", "Plans", "steer"),
    ("tasks", "Tasks", "steer"),
    ("ledger", "Ledger", "steer"),
    ("timeline", "Timeline", "look"),
    ("lab", "Lab", "look"),
    ("processes", "Processes", "keep"),
    ("audit", "Audit log", "keep"),
    ("settings", "Settings", "keep"),
    ("help", "Help", "keep"),
)
TABS = ("overview", "alerts", "loops", "timeline")  # on a phone; the others are under More
PLANT_PAGES = ("plant", "plant-tasks", "plant-release", "plant-intervene", "plant-undo", "plant-remove")
RAIL_ACTIONS = {"audit": "audit.view", "processes": "process.view"}


class Absence(StrEnum):
    """The reason why a page has no snapshot, in the words of its strip."""

    STARTING = "The plant is starting. Figures appear with the first snapshot."
    UNANSWERED = "The control server is not responding. The state of the plant is unknown."
    UNREAD = "The snapshot can't be read by this version. The state of the plant is unknown."
    UNKEPT = "No snapshot is available for that time. The state of the plant is unknown."
    NO_ROLE = "You need a role to see the plant. Ask an administrator for a role."


@dataclass(frozen=True)
class RailItem:
    """A page on the rail. counted: the derived value that updates `count`; None: it has no count."""

    name: str
    label: str
    icon: str
    section: str
    url: str
    count: int | None
    counted: str | None
    counted_words: str | None


@dataclass(frozen=True)
class HealthStrip:
    """The state of the plant in a line; word: read before its sentence.

    Without a snapshot all other fields are None.
    """

    state: str | None
    word: str
    sentence: str
    doing: str
    more: int  # findings besides the one in the sentence
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
class Frame:
    """The frame around every page."""

    plant: str
    shows_plant: bool  # whether the page belongs to one plant
    plants: list[PlantChoice]
    plants_stale: bool
    strip: HealthStrip
    absent: str  # name of the `Absence`; "": there is a snapshot
    past: PastInstant | None  # instant that the page shows
    unreached: PastInstant | None  # requested instant, on a page that shows the present
    lists_records: bool  # whether it can list what happened around an instant
    rail: list[RailItem]
    tabs: list[RailItem]
    overrides: list[OverrideStatus]
    hands: int  # overrides and other manual changes (`workers.snapshot.health`)
    alerts: list[AlertStatus]
    suppressed: int  # open alerts that need no attention
    user: str
    role: str | None
    limited: bool  # limited to some queues: actions on the whole plant are not offered
    submission: str  # of a form that is sent without a script
    can: dict[str, bool]  # by action, with dots as underscores: see console.accounts.access.ACTIONS


def snapshot_of(request: HttpRequest) -> Snapshot | None:
    """Return the snapshot of a request: the newest, or that of the instant in the address.

    It is read once a request, so that a page never shows two instants.
    """
    noted = cast(WebRequest, request)
    if not hasattr(request, "weir_snapshot"):
        noted.weir_snapshot, noted.weir_absence = _read(request)
    return noted.weir_snapshot


def _read(request: HttpRequest) -> tuple[Snapshot | None, Absence]:
    """Return the snapshot, and the reason if there is none."""
    asked = past.past_of(request)
    if asked is not None:
        return asked.snapshot, Absence.UNKEPT
    try:
        return load_snapshot(), Absence.STARTING
    except redis.RedisError:
        return None, Absence.UNANSWERED
    except BadDocument:  # the observer has another version, for example during an upgrade
        return None, Absence.UNREAD


def absence_of(request: HttpRequest) -> Absence | None:
    """Return why there is no snapshot; None if there is one."""
    return cast(WebRequest, request).weir_absence if snapshot_of(request) is None else None


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
    unreached, match = past.find_unreachable_instant(request), request.resolver_match
    at_query = (was or unreached or past.NOW).query
    rail = _rail(actor, snapshot, at_query)
    shown = _find_plant(request)
    return {
        "frame": Frame(
            plant=shown or LOCAL,
            shows_plant=shown is not None,
            plants=known,
            plants_stale=any(plant.stale for plant in known),
            strip=_build_health_strip(snapshot, absence),
            absent=absence.name if absence else "",
            past=was,
            unreached=unreached,
            lists_records=match is not None and match.url_name in past.RECORDS,
            rail=rail,
            tabs=[item for item in rail if item.name in TABS],
            overrides=snapshot.overrides if snapshot else [],
            hands=len(snapshot.overrides) + len(snapshot.hands) if snapshot else 0,
            alerts=list_calling_alerts(snapshot),
            suppressed=len(snapshot.alerts) - len(list_calling_alerts(snapshot)) if snapshot else 0,
            user=actor.name,
            role=actor.role,
            limited=actor.queues is not None,
            submission=secrets.token_hex(16),
            # The past can't be changed.
            can=actor.list_permissions() if was is None else dict.fromkeys(actor.list_permissions(), False),
        )
    }


def _rail(actor: Actor, snapshot: Snapshot | None, at_query: str) -> list[RailItem]:
    counts = {"plans": count_proposals(snapshot), "alerts": len(list_calling_alerts(snapshot))}
    shown = [entry for entry in on_rail() if actor.may_somewhere(get_page_permission(entry[0]))]
    return [_build_rail_item(*entry, counts, at_query) for entry in shown]


def _build_health_strip(snapshot: Snapshot | None, absence: Absence | None) -> HealthStrip:
    if snapshot is None:
        return HealthStrip(None, get_health_word(None), str(absence), "", 0, None, None)
    health = snapshot.health
    more = max(0, len(health.findings) - 1)
    return HealthStrip(
        health.state, get_health_word(health), health.sentence, health.doing, more, snapshot.at, snapshot.seq
    )


def list_plants(snapshot: Snapshot | None) -> list[PlantChoice]:
    """Return this console's plant and the registered plants."""
    here = PlantChoice(LOCAL, reverse("overview"), NORMAL, "this console", stale=False)
    others = snapshot.plants if snapshot else {}
    return [here, *(_build_plant_choice(name, row) for name, row in others.items())]


def _build_plant_choice(name: str, row: PlantStatus) -> PlantChoice:
    url, seen = reverse("plant", args=[name]), row.state == "seen"
    if seen and row.error is None:
        return PlantChoice(name, url, NORMAL, "seen", stale=False)
    word = "invalid responses" if seen else "stale" if row.state == "stale" else "not observed yet"
    return PlantChoice(name, url, BUSY if seen else OFFLINE, word, stale=not seen)


def _find_plant(request: HttpRequest) -> str | None:
    """Return the plant that the page names; other pages belong to this plant and name none."""
    match = request.resolver_match
    return match.kwargs["name"] if match and match.url_name in PLANT_PAGES else None


def count_proposals(snapshot: Snapshot | None) -> int:
    """Return the number of plans that wait for approval."""
    return sum(plan.state == Plan.State.PROPOSED for plan in (snapshot.plans if snapshot else ()))


def list_calling_alerts(snapshot: Snapshot | None) -> list[AlertStatus]:
    """Return the open alerts that need somebody or are acknowledged.

    Explained, silenced, and snoozed alerts are left out.
    """
    alerts = snapshot.alerts if snapshot else ()
    return [row for row in alerts if row.quiet in (None, "acknowledged")]


COUNTED = {"plans": "open_proposals", "alerts": "open_alerts"}
COUNTED_WORDS = {"plans": "to approve", "alerts": "open"}


def on_rail() -> list[tuple[str, str, str]]:
    """Return name, label, and section of each page on the rail, in order."""
    entries: list[tuple[str, str, str]] = list(RAIL)
    entries += [(page.name, page.label, page.section) for page in load_pages().values()]
    return sorted(entries, key=lambda entry: SECTIONS.index(entry[2]))


def get_page_permission(name: str) -> str:
    """Return the permission that is needed to see a page on the rail."""
    page = load_pages().get(name)
    return page.action if page else RAIL_ACTIONS.get(name, "plant.view")


def _build_rail_item(name: str, label: str, section: str, counts: dict[str, int], at_query: str) -> RailItem:
    """Build a rail item. Links keep the instant of the past; a page that can't show it says so."""
    page = load_pages().get(name)
    return RailItem(
        name=name,
        label=label,
        icon=page.icon if page else name,
        section=section,
        url=reverse(name) + at_query,
        count=counts.get(name),
        counted=COUNTED.get(name),
        counted_words=COUNTED_WORDS.get(name),
    )
