"""The frame around every page: the rail, the strip, and the user's permissions."""

import secrets
import time
from dataclasses import dataclass
from enum import StrEnum

import redis
from django.http import HttpRequest
from django.urls import reverse

from common.stored_document import BadDocument
from console.accounts.access import Actor, actor_of
from console.connections.control_server import load_snapshot
from console.display.states import get_health_word, list_calling_alerts
from console.navigation import get_page_permission, load_pages, on_rail
from console.pages.frame import past
from console.pages.frame.outage import Outage, find_outage
from console.pages.frame.past import PastInstant
from console.templatetags.live import RailItem
from console.web.web_request import get_web_request
from queues.nodes.node_state import BUSY, NORMAL, OFFLINE
from workers.documents.alerts import AlertStatus
from workers.documents.loops import OverrideStatus
from workers.documents.snapshot import NOTHING_SEEN, Snapshot
from workers.models import Plan
from workers.plants.registry import LOCAL

TABS = ("overview", "alerts", "loops", "timeline")  # on a phone; the others are under More
PLANT_PAGES = ("plant", "plant-tasks", "plant-release", "plant-intervene", "plant-undo", "plant-remove")
COUNTED = {"plans": ("open_proposals", "to approve"), "alerts": ("open_alerts", "open")}


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
    outage: Outage | None  # why no data arrives, if it is known
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
    rail = _rail(actor, snapshot, at_query)
    # Only pages of registered plants name a plant; the others belong to this one.
    shown = match.kwargs["name"] if match and match.url_name in PLANT_PAGES else None
    if snapshot is None:
        strip = HealthStrip(None, get_health_word(None), str(absence), "", 0, None, None)
    else:
        health, more = snapshot.health, max(0, len(snapshot.health.findings) - 1)
        word = get_health_word(health)
        strip = HealthStrip(health.state, word, health.sentence, health.doing, more, snapshot.at, snapshot.seq)
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
    """Return the rail. Links keep the instant of the past; a page that can't show it says so."""
    proposals = sum(plan.state == Plan.State.PROPOSED for plan in (snapshot.plans if snapshot else ()))
    counts = {"plans": proposals, "alerts": len(list_calling_alerts(snapshot))}
    items = []
    for name, label, section in on_rail():
        if actor.may_somewhere(get_page_permission(name)):
            page, (counted, words) = load_pages().get(name), COUNTED.get(name, (None, None))
            icon, url = page.icon if page else name, reverse(name) + at_query
            items.append(RailItem(name, label, icon, section, url, counts.get(name), counted, words))
    return items


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
