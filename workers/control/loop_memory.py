"""What a loop remembers from one tick to the next: its law, its guard, its sensor's counters, and its mode.

Law and guard remember what is in force, and not what was proposed: a limit that nobody applied limits
nothing, money that nobody spent is left, and a level of the remedy ladder that nobody enabled was not tried.
So in advise, and after an action that failed, the law goes on as if nothing had been done; in hold and manual
it stands still. When it begins to act, ceases to, or takes over again, it forgets what has lapsed meanwhile
(`controllers.framework.law.Resuming`).
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from controllers import catalog, request
from controllers.framework import guard
from controllers.framework.guard import Guarded
from controllers.framework.law import Lapsing, Law, Supposing, resumed
from controllers.framework.sensed import Sensed
from queues.errors import BadInput
from workers.control.ledger import ledger
from workers.models import LedgerEntry, Loop

logger = logging.getLogger(__name__)
Mode = Loop.Mode
State = dict[str, Any]


def last_mode(stored: Mapping[str, Any] | None) -> str:
    """The mode of the tick that stored this; an older Weir's says only whether the law had decided."""
    stored = stored or {}
    return str(stored.get("mode") or (Mode.HOLD if stored.get("held") else Mode.AUTO))


def resumes(last: str, mode: str) -> bool:
    """Whether a law decides after a tick in another mode: what it remembers is of another time."""
    return last != mode and mode not in Loop.HANDED_OVER


def load_memory(loop: Loop, law: Law, mode: str, parameters: Mapping[str, Any]) -> State:
    """{"law", "guard", "sensor"} as stored, or the first; in another mode as the law resumes from it."""
    stored = loop.state or {}
    law_state = _law_state(loop, law, parameters, stored.get("law"))
    guard_state = guard.read_state(stored.get("guard"))
    if resumes(last_mode(stored), mode):
        law_state, guard_state = merge_memory(law, parameters, law_state, guard_state)
    elif isinstance(law, Lapsing) and guard_state["value"] is None:
        guard_state = {**guard_state, "value": law.lapsed}
    return {"law": law_state, "guard": guard_state, "sensor": stored.get("sensor")}


def merge_memory(
    law: Law, parameters: Mapping[str, Any], law_state: State, guard_state: State
) -> tuple[State, State]:
    """What law and guard remember when the law decides again, without what has lapsed meanwhile."""
    value = law.lapsed if isinstance(law, Lapsing) else guard_state["value"]
    return resumed(law, parameters, law_state), {**guard_state, "value": value}


def _law_state(loop: Loop, law: Law, parameters: Mapping[str, Any], stored: Any) -> State:
    """What the law remembers; a loop whose memory is of no use begins anew rather than never again."""
    try:
        return catalog.read_state(law, parameters, stored)
    except BadInput as error:
        logger.warning("%s begins anew: what it remembers is not valid (%s).", loop.name, error)
        return catalog.read_state(law, parameters, None)


def build_memory(mode: str, before: State, guarded: Guarded, sensed: Sensed) -> State:
    """What is stored. The sensor's counters go on in every mode, law and guard not in hold; in manual the law
    stands still, too (`guard.decide`).
    """
    counters = sensed.counters or None
    if mode == Mode.HOLD:
        return {**before, "sensor": counters, "mode": mode}
    return {"law": guarded.state, "guard": guarded.guard_state, "sensor": counters, "mode": mode}


def undo(entry: LedgerEntry, loop: Loop) -> None:
    """Have the law go on as if an entry's action, which failed, had not been decided. The guard does not:
    nobody knows how much of it was done, and what it may have cost counts as spent.
    """
    if not isinstance(catalog.law(loop.law), Supposing):
        return
    loop.refresh_from_db(fields=["state"])
    with suppress(BadInput):  # a record that is no longer valid for the law
        loop.state = {**(loop.state or {}), "law": undone(entry)}
        Loop.objects.filter(pk=loop.pk, fence=entry.fence).update(state=loop.state)


def undone(entry: LedgerEntry) -> State:
    """The state of the law after an entry whose action was not applied. Raises `BadInput`."""
    state: State = request.decide_once(catalog.law(entry.loop.law), ledger.export(entry), applies=False).state
    return state
