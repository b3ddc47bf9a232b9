"""What every page has around it: the rail, the strip, and what the visitor may do."""

import secrets
from typing import Any, cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from console.accounts.access import actor_of
from console.connections.control_server import latest_snapshot
from console.live.view import view_named
from console.pages.frame import past
from console.web.web_request import WebRequest
from queues.nodes.node_state import BUSY, NORMAL, OFFLINE
from workers.models import Plan
from workers.plants.registry import LOCAL

RAIL = (
    ("overview", "Overview", "watch"),
    ("nodes", "Nodes", "watch"),
    ("queues", "Queues", "watch"),
    ("dead-letters", "Dead letters", "watch"),
    ("workers", "Workers", "watch"),
    ("pipeline", "Pipeline", "watch"),
    ("alerts", "Alerts", "watch"),
    ("loops", "Loops", "steer"),
    ("overrides", "Overrides", "steer"),
    ("plans", "Plans", "steer"),
    ("tasks", "Tasks", "steer"),
    ("ledger", "Ledger", "steer"),
    ("timeline", "Timeline", "look"),
    ("lab", "Lab", "look"),
    ("audit", "Audit", "keep"),
    ("settings", "Settings", "keep"),
    ("help", "Help", "keep"),
)
TABS = ("overview", "alerts", "loops", "timeline")  # on a phone; the others are under More
PLANT_PAGES = ("plant", "plant-tasks", "plant-release", "plant-remove")
RAIL_ACTIONS = {"audit": "audit.view"}
NO_SNAPSHOT = "The plant is starting. Numbers appear with the first snapshot."


def show(request: HttpRequest, template: str, page: str, view: str = "whole", **context: Any) -> HttpResponse:
    """Render a page: `snapshot` (newest, or None) and `page` (its name on the rail) are always there.

    `view` names the part of the snapshot (`console.live.view`) that the page's scripts get, and follow.
    """
    snapshot = snapshot_of(request)
    # A page that only has parts of it written anew (static/js/values/refresh.js) has the snapshot already.
    parts_only = "X-Weir-Parts" in request.headers
    watched = None if parts_only else snapshot and view_named(view).narrowed(snapshot)
    return render(
        request, template, {"page": page, "snapshot": snapshot, "watched": watched, "view": view, **context}
    )


def snapshot_of(request: HttpRequest) -> dict[str, Any] | None:
    """One snapshot a request, so that a page never shows two instants side by side: the newest, or the one
    of the instant that the address names.
    """
    noted = cast(WebRequest, request)
    if not hasattr(request, "weir_snapshot"):
        asked = past.past_of(request)
        noted.weir_snapshot = latest_snapshot() if asked is None else asked.snapshot
    return noted.weir_snapshot


def frame(request: HttpRequest) -> dict[str, Any]:
    """Context processor: `frame` with strip, rail, overrides, role and `can` (see
    console.accounts.access.ACTIONS).
    """
    if not getattr(request, "user", None) or not request.user.is_authenticated:
        return {"frame": None}
    actor = actor_of(request)
    snapshot = snapshot_of(request) if actor.may("plant.view") else None
    was = past.past_of(request)
    counts = {"plans": proposals(snapshot), "alerts": len(calling(snapshot))}
    rail = [
        _item(*entry, counts, was) for entry in RAIL if actor.may(RAIL_ACTIONS.get(entry[0], "plant.view"))
    ]
    return {
        "frame": {
            "plant": _shown_plant(request),
            "plants": (known := plants(snapshot)),
            "plants_troubled": any(each["stale"] for each in known),
            "strip": _strip(snapshot),
            "past": was,
            "rail": rail,
            "tabs": [item for item in rail if item["name"] in TABS],
            "overrides": (snapshot or {}).get("overrides", []),
            "alerts": calling(snapshot),
            "user": actor.name,
            "role": actor.role,
            # What is past can't be steered.
            "submission": secrets.token_hex(16),  # of a form that is sent without a script
            "can": actor.permissions() if was is None else dict.fromkeys(actor.permissions(), False),
        }
    }


def _strip(snapshot: dict[str, Any] | None) -> dict[str, Any]:
    if snapshot is None:
        return {"state": None, "sentence": NO_SNAPSHOT, "at": None, "seq": None}
    return {**snapshot["health"], "at": snapshot["at"], "seq": snapshot["seq"]}


def plants(snapshot: dict[str, Any] | None) -> list[dict[str, Any]]:
    """This plant, which is this console, and the registered ones: name, url, state and its word."""
    here = {
        "name": LOCAL,
        "url": reverse("overview"),
        "state": NORMAL,
        "word": "this console",
        "stale": False,
    }
    others = (snapshot or {}).get("plants") or {}
    return [here, *(_plant(name, row) for name, row in others.items())]


def _plant(name: str, row: dict[str, Any]) -> dict[str, Any]:
    url, seen = reverse("plant", args=[name]), row["state"] == "seen"
    if seen and row["error"] is None:
        return {"name": name, "url": url, "state": NORMAL, "word": "seen", "stale": False}
    word = "answers wrongly" if seen else "stale" if row["state"] == "stale" else "not seen yet"
    return {"name": name, "url": url, "state": BUSY if seen else OFFLINE, "word": word, "stale": not seen}


def _shown_plant(request: HttpRequest) -> str:
    """The plant whose page it is; every other page is of this one."""
    match = request.resolver_match
    return match.kwargs["name"] if match and match.url_name in PLANT_PAGES else LOCAL


def proposals(snapshot: dict[str, Any] | None) -> int:
    """How many plans wait for somebody's approval."""
    return sum(plan["state"] == Plan.State.PROPOSED for plan in (snapshot or {}).get("plans", ()))


def calling(snapshot: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The open alerts that call for somebody, or are in somebody's hands: none that is explained, silenced
    or snoozed.
    """
    return [row for row in (snapshot or {}).get("alerts", ()) if row["quiet"] in (None, "acknowledged")]


COUNTED = {"plans": "open_proposals", "alerts": "open_alerts"}
COUNTED_WORDS = {"plans": "to approve", "alerts": "open"}


def _item(
    name: str, label: str, section: str, counts: dict[str, int], was: past.PastInstant | None
) -> dict[str, Any]:
    """Who sees the past stays there, from page to page that can show it."""
    return {
        "name": name,
        "label": label,
        "section": section,
        "url": reverse(name) + (was.query if was is not None and name in past.PAGES else ""),
        "count": counts.get(name),
        "counted": COUNTED.get(name),
        "counted_words": COUNTED_WORDS.get(name),
    }
