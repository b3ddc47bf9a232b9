"""A queue's remedy ladder as levels: which are active, which are exhausted, and how far it may go."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from controllers import catalog
from controllers.shedding.ladder import LAW, LEVELS
from workers.control.ledger import ledger
from workers.models import LedgerEntry, Loop
from workers.steering import overrides

WORDS = {
    "rebalance": "Points move to nodes with free capacity",
    "workers": "More workers, threads, or tasks",
    "nodes": "More nodes",
    "throttle": "Producers are delayed",
    "shed": "Events are dropped",
}


@dataclass(frozen=True)
class LadderStep:
    """One level. kind: of its glyph and color (engaged, spent, ready, never)."""

    name: str
    about: str
    kind: str
    word: str


@dataclass(frozen=True)
class LadderSteps:
    """A queue's ladder.

    loop: its number; cap: the highest level allowed; own_cap: the cap without overrides; reason, at: of its last
    decision.
    """

    queue: str
    loop: int
    mode: str
    acts: bool
    cap: str
    own_cap: str
    never_shed: bool
    reason: str | None
    at: datetime | None
    steps: list[LadderStep]

    @property
    def name(self) -> str:
        """Return the name of its loop."""
        return f"{LAW.name}/{self.queue}"


def build_ladder(queue: str) -> LadderSteps | None:
    """Return the current ladder; None for a queue without one."""
    loop = Loop.objects.filter(name=f"{LAW.name}/{queue}").first()
    if loop is None:
        return None
    now = timezone.now()
    held = overrides.list_effective(loop, now)
    cap = overrides.get_effective_parameters(LAW, loop.parameters, held, now)["cap"]
    mode = overrides.get_effective_mode(loop, held, now)
    entry = ledger.find_last_entry(loop)
    rung = int(_merge_manual_terms(entry).get("rung", 0))
    saturated = ((entry.observation or {}) if entry else {}).get("saturated") or {}
    # A decision of another mode is not in force: the next decision is.
    is_done = mode in Loop.ACTING and entry is not None and entry.mode == mode
    return LadderSteps(
        queue=queue,
        loop=loop.pk,
        mode=mode,
        acts=mode in Loop.ACTING,
        cap=cap,
        own_cap=catalog.read_parameters(LAW, loop.parameters)["cap"],
        never_shed=cap != LEVELS[-1],
        reason=entry.reason if entry else None,
        at=entry.at if entry else None,
        steps=[_step(place, rung, saturated, cap, is_done) for place in range(len(LEVELS))],
    )


def _merge_manual_terms(entry: LedgerEntry | None) -> dict[str, Any]:
    """Return the terms with the level in force: the guard limits a manual level, too."""
    return {**entry.terms.get("manual", {}), **entry.terms} if entry else {}


def _step(place: int, rung: int, saturated: Mapping[str, bool], cap: str, acts: bool) -> LadderStep:
    name = LEVELS[place]
    if place > LEVELS.index(cap):
        kind, word = "never", "not allowed for this queue"
    elif place < rung:
        kind, word = "engaged", "enabled" if acts else "would be enabled"
        if saturated.get(name):
            word += ", exhausted"
    elif saturated.get(name):
        kind, word = "spent", "exhausted now"
    else:
        kind, word = "ready", "ready"
    return LadderStep(name, WORDS[name], kind, word)
