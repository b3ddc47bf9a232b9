"""Memory of a loop from one tick to the next: its law, its guard, its sensor's counters, and its mode.

Law and guard remember what is in force and not what was proposed: a limit that was not applied limits nothing, a budget
that was not spent remains, and a level of the remedy ladder that was not enabled was not tried. In advise, and after an
action that failed, the law therefore continues as if nothing had been done; in hold and manual its state does not
change. When the law starts to act, stops acting, or takes over again, it forgets values that have expired
(`controllers.framework.law.BumplessTransfer`).
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from common.errors import BadInput
from controllers import catalog, request
from controllers.framework import guard
from controllers.framework.guard import GuardedDecision
from controllers.framework.law import AntiWindup, Expiring, Law, resume_state
from controllers.framework.sensed import Measurement
from workers.control.ledger import ledger
from workers.models import LedgerEntry, Loop

logger = logging.getLogger(__name__)
Mode = Loop.Mode
State = dict[str, Any]


def get_last_mode(stored: Mapping[str, Any] | None) -> str:
    """Return the mode of the tick that stored this memory.

    Old versions stored only whether the law had decided.
    """
    stored = stored or {}
    return str(stored.get("mode") or (Mode.HOLD if stored.get("held") else Mode.AUTO))


def resumes(last: str, mode: str) -> bool:
    """Return whether the law decides after a tick in another mode, so that its memory is outdated."""
    return last != mode and mode not in Loop.HANDED_OVER


def load_memory(loop: Loop, law: Law, mode: str, parameters: Mapping[str, Any]) -> State:
    """Return {"law", "guard", "sensor"} as stored, or the initial memory.

    After a change of mode, the law resumes from the stored memory.
    """
    stored = loop.state or {}
    law_state = _read_law_state(loop, law, parameters, stored.get("law"))
    guard_state = guard.read_state(stored.get("guard"))
    if resumes(get_last_mode(stored), mode):
        law_state, guard_state = merge_memory(law, parameters, law_state, guard_state)
    elif isinstance(law, Expiring) and guard_state["value"] is None:
        guard_state = {**guard_state, "value": law.lapsed}
    return {"law": law_state, "guard": guard_state, "sensor": stored.get("sensor")}


def merge_memory(law: Law, parameters: Mapping[str, Any], law_state: State, guard_state: State) -> tuple[State, State]:
    """Return the memory of law and guard when the law decides again, without expired values."""
    value = law.lapsed if isinstance(law, Expiring) else guard_state["value"]
    return resume_state(law, parameters, law_state), {**guard_state, "value": value}


def _read_law_state(loop: Loop, law: Law, parameters: Mapping[str, Any], stored: Any) -> State:
    """Return the law's memory.

    A loop whose memory is unusable starts with a new one instead of failing forever.
    """
    try:
        return catalog.read_state(law, parameters, stored)
    except BadInput as error:
        logger.warning("%s starts with an empty state: the stored state is invalid (%s).", loop.name, error)
        return catalog.read_state(law, parameters, None)


def build_memory(mode: str, before: State, guarded: GuardedDecision, sensed: Measurement) -> State:
    """Build the memory to store.

    The sensor's counters advance in every mode, law and guard not in hold; in manual the law's state does not change
    either (`guard.decide`).
    """
    counters = sensed.counters or None
    if mode == Mode.HOLD:
        return {**before, "sensor": counters, "mode": mode}
    return {"law": guarded.state, "guard": guarded.guard_state, "sensor": counters, "mode": mode}


def undo(entry: LedgerEntry, loop: Loop) -> None:
    """Reset the law's memory as if the entry's failed action had not been decided.

    The guard's memory stays: it is unknown how much was done, and the possible cost counts as spent.
    """
    if not isinstance(catalog.get_law(loop.law), AntiWindup):
        return
    loop.refresh_from_db(fields=["state"])
    with suppress(BadInput):  # a record that is no longer valid for the law
        loop.state = {**(loop.state or {}), "law": compute_undone_state(entry)}
        Loop.objects.filter(pk=loop.pk, fence=entry.fence).update(state=loop.state)


def compute_undone_state(entry: LedgerEntry) -> State:
    """Return the law's state after an entry whose action was not applied. Raises `BadInput`."""
    state: State = request.decide_once(catalog.get_law(entry.loop.law), ledger.export(entry), applies=False).state
    return state
