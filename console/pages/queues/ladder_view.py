"""A queue's remedy ladder as levels: what is enabled, what can do no more, and how far it may go."""

from typing import Any

from django.utils import timezone

from controllers.shedding.ladder import LAW, LEVELS
from workers.models import Loop
from workers.steering import overrides

WORDS = {
    "rebalance": "Points move to nodes with free capacity",
    "workers": "More workers, threads or tasks",
    "nodes": "More nodes",
    "throttle": "Producers wait: delay",
    "shed": "Events are dropped: loss",
}


def ladder_of(queue: str) -> dict[str, Any] | None:
    """{queue, loop, mode, cap, never_shed, reason, at, steps}, or None for a queue without a ladder."""
    loop = Loop.objects.filter(name=f"{LAW.name}/{queue}").first()
    if loop is None:
        return None
    now = timezone.now()
    held = overrides.on(loop, now)
    cap = overrides.effective_parameters(LAW, loop.parameters, held, now)["cap"]
    mode = overrides.value_of("mode", held, now) or loop.mode
    entry = loop.entries.order_by("-at", "-id").first()
    rung = int(_terms(entry).get("rung", 0))
    saturated = ((entry.observation or {}) if entry else {}).get("saturated") or {}
    return {
        "queue": queue,
        "loop": loop.pk,
        "mode": mode,
        "acts": mode in Loop.ACTING,
        "cap": cap,
        "never_shed": cap != LEVELS[-1],
        "reason": entry.reason if entry else None,
        "at": entry.at if entry else None,
        "steps": [_step(place, rung, saturated, cap, mode in Loop.ACTING) for place in range(len(LEVELS))],
    }


def _terms(entry: Any) -> dict[str, Any]:
    """A person's level stands before the law's."""
    return {**entry.terms, **entry.terms.get("manual", {})} if entry else {}


def _step(place: int, rung: int, saturated: dict[str, bool], cap: str, acts: bool) -> dict[str, str]:
    """One level: kind (for glyph and colour) and word."""
    name = LEVELS[place]
    if place > LEVELS.index(cap):
        kind, word = "never", "never for this queue"
    elif place < rung:
        kind, word = "engaged", "enabled" if acts else "would be enabled"
        if saturated.get(name):
            word += ", exhausted"
    elif saturated.get(name):
        kind, word = "spent", "exhausted"
    else:
        kind, word = "ready", "ready"
    return {"name": name, "about": WORDS[name], "kind": kind, "word": word}
