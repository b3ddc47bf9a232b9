"""Execution of a tick's entries after they are written.

Actions are applied, previously applied values are kept alive, and advice is proposed to a person.
"""

import logging
from collections.abc import Callable
from datetime import datetime

from common.errors import WeirError
from workers.control import loop_memory
from workers.control.kinds.registry import get_kind
from workers.control.ledger import ledger
from workers.control.parts.kind import Proposer
from workers.control.setting import TickSetting
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.plants.plant import Plant

logger = logging.getLogger(__name__)
Mode = Loop.Mode
KEEPING = (Mode.AUTO, Mode.HOLD)  # modes in which the values that the loop has set are kept alive
# An open action that is older than this many intervals is not repeated, because the plant has changed since
# the decision. A tick that died keeps its lease for 4 s; the next holder may still apply what that tick
# recorded.
REPEAT_INTERVALS, REPEAT_SECONDS = 3.0, 6.0
# How long an answer of the ledger is trusted, and how long a completed action may stay unconfirmed. A process
# that is frozen for longer asks again before it acts.
CHECK_SECONDS = 0.25


class ActionExecutor:
    """Executor of the entries of one tick, in order; `confirm` completes it.

    clock: seconds that only increase.

    The check for later ticks and the confirmation of actions are each done for all entries together, every
    `CHECK_SECONDS`. A process that ends before it confirms therefore leaves several open entries instead of one; the
    next tick applies them under the same ids.
    """

    def __init__(self, entries: list[LedgerEntry], plant: Plant, clock: Callable[[], float]) -> None:
        self._plant, self._clock = plant, clock
        self._acting = {entry.pk: entry for entry in entries if applies(entry)}
        self._ours: set[int] = set()
        self._done: list[LedgerEntry] = []
        self._checked_at = float("-inf")

    def follow(self, entry: LedgerEntry, loop: Loop, snapshot: Snapshot, now: datetime) -> None:
        """Apply, keep alive, or propose one of the entries, depending on its mode."""
        kind = get_kind(loop.law)
        if entry.pk in self._acting:
            if self._is_ours(entry):
                self._apply(entry, loop)
            else:
                logger.warning("A later tick of %s has run; this tick does nothing more.", loop.name)
        elif entry.mode in KEEPING and kind.keeper is not None:
            kind.keeper(entry, loop, self._plant)
        elif entry.action is not None and entry.mode == Mode.ADVISE and kind.proposer is not None:
            _propose(entry, kind.proposer, snapshot, now)

    def _is_ours(self, entry: LedgerEntry) -> bool:
        """Return whether no later tick of the loop has run since the entry was written.

        A process that was paused may find one.
        """
        if self._clock() - self._checked_at > CHECK_SECONDS:
            self.confirm()
            self._ours, self._checked_at = ledger.find_current_ids(self._acting.values()), self._clock()
        return entry.pk in self._ours

    def _apply(self, entry: LedgerEntry, loop: Loop) -> None:
        del self._acting[entry.pk]
        if _is_applied(entry, loop, self._plant):
            self._done.append(entry)

    def confirm(self) -> None:
        """Record that the plant accepted the completed actions."""
        done, self._done = self._done, []
        ledger.confirm(*done)


def applies(entry: LedgerEntry) -> bool:
    """Return whether the entry has an action to apply."""
    return entry.action is not None and entry.mode in ledger.APPLYING_MODES


def takes_long(entry: LedgerEntry, loop: Loop) -> bool:
    """Return whether processing an entry calls a server.

    Such a call may take longer than a lease, and the work would then be done twice.
    """
    return entry.action is not None or get_kind(loop.law).keeper is not None


def finish(entry: LedgerEntry, setting: TickSetting, loop: Loop, plant: Plant, now: datetime) -> None:
    """Apply the open action that an interrupted tick recorded, or give it up.

    The action is given up when too much time has passed, the loop's mode has changed, or a person has set another value
    since. The entry records the reason.
    """
    age_seconds = abs((now - entry.at).total_seconds())
    ended = "The action was not confirmed and is not repeated"
    if setting.mode != entry.mode:
        modes = f"the loop was in mode {entry.mode}, and is now in mode {setting.mode}"
        _give_up(entry, loop, f"{ended}: {modes}.")
    elif entry.parameters.get("manual") != setting.manual:
        _give_up(entry, loop, f"{ended}: the manual value has changed.")
    elif age_seconds > max(REPEAT_INTERVALS * loop.interval_seconds, REPEAT_SECONDS):
        _give_up(entry, loop, f"{ended}: it is {age_seconds:.0f} s old.")
    elif _is_applied(entry, loop, plant):
        ledger.confirm(entry)


def _is_applied(entry: LedgerEntry, loop: Loop, plant: Plant) -> bool:
    """Apply the action and return whether it succeeded.

    An error of the plant is recorded in the entry, and the loop continues at its next tick.
    """
    try:
        get_kind(loop.law).actuator(entry, loop, plant)
    except Exception as error:
        logger.warning("%s could not be applied: %s", loop.name, error)
        _give_up(entry, loop, f"{type(error).__name__}: {error}")
        return False
    return True


def _give_up(entry: LedgerEntry, loop: Loop, error: str) -> None:
    """Record why the action was not applied, and undo its effect on the law's state."""
    ledger.fail(entry, error)
    loop_memory.undo(entry, loop)


def _propose(entry: LedgerEntry, proposer: Proposer, snapshot: Snapshot, now: datetime) -> None:
    """Propose the entry's advice to a person; a failure is recorded as the entry's error."""
    try:
        proposer(entry, snapshot, now)
    except WeirError as error:
        ledger.fail(entry, str(error))
