"""What comes of a tick's entries, once they are written: an action is applied, what was applied before is
kept, advice is put before a person.
"""

import logging
from collections.abc import Callable
from datetime import datetime

from queues.errors import WeirError
from workers.control import loop_memory
from workers.control.kinds.registry import kind_of
from workers.control.ledger import ledger
from workers.control.parts.kind import Proposer
from workers.control.setting import TickSetting
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.plants.plant import Plant

logger = logging.getLogger(__name__)
Mode = Loop.Mode
KEEPING = (Mode.AUTO, Mode.HOLD)  # what the loop has set stays
# An open action older than this many intervals is not repeated: it was decided on a plant long gone.
# A tick that died keeps its lease for 4 s; whoever comes then may still do what it had recorded.
REPEAT_INTERVALS, REPEAT_SECONDS = 3.0, 6.0
# For so long what was asked of the ledger holds, and what was done may be unconfirmed: who is frozen for
# longer asks again before it acts.
CHECK_SECONDS = 0.25


class Acts:
    """Of the entries of one tick, in order; `confirm` ends it. clock: seconds that only rise.

    Whether later ticks were there, and that actions were taken, is asked and written for all together, each
    `CHECK_SECONDS`. A process that ends before it has confirmed leaves several open entries then, not one;
    the next tick applies them under the same ids, as it would one.
    """

    def __init__(self, entries: list[LedgerEntry], plant: Plant, clock: Callable[[], float]) -> None:
        self._plant, self._clock = plant, clock
        self._acting = {entry.pk: entry for entry in entries if applies(entry)}
        self._ours: set[int] = set()
        self._done: list[LedgerEntry] = []
        self._checked_at = float("-inf")

    def follow(self, entry: LedgerEntry, loop: Loop, snapshot: Snapshot, now: datetime) -> None:
        """What comes of one entry of these."""
        kind = kind_of(loop.law)
        if entry.pk in self._acting:
            if self._is_ours(entry):
                self._apply(entry, loop)
            else:
                logger.warning("A later tick of %s was there; this one does nothing any more.", loop.name)
        elif entry.mode in KEEPING and kind.keeper is not None:
            kind.keeper(entry, loop, self._plant)
        elif entry.action is not None and entry.mode == Mode.ADVISE and kind.proposer is not None:
            _propose(entry, kind.proposer, snapshot, now)

    def _is_ours(self, entry: LedgerEntry) -> bool:
        """Whether no later tick was there since it was written: who was paused may find one."""
        if self._clock() - self._checked_at > CHECK_SECONDS:
            self.confirm()
            self._ours, self._checked_at = ledger.ours(self._acting.values()), self._clock()
        return entry.pk in self._ours

    def _apply(self, entry: LedgerEntry, loop: Loop) -> None:
        del self._acting[entry.pk]
        if _is_applied(entry, loop, self._plant):
            self._done.append(entry)

    def confirm(self) -> None:
        """Note that the plant took what was done."""
        done, self._done = self._done, []
        ledger.confirm(*done)


def applies(entry: LedgerEntry) -> bool:
    """Whether an action is to be applied."""
    return entry.action is not None and entry.mode in ledger.APPLYING_MODES


def takes_long(entry: LedgerEntry, loop: Loop) -> bool:
    """Whether what comes of an entry asks a server: that may take longer than a lease, and would then be done
    twice.
    """
    return entry.action is not None or kind_of(loop.law).keeper is not None


def finish(entry: LedgerEntry, setting: TickSetting, loop: Loop, plant: Plant, now: datetime) -> None:
    """Apply what a tick that died had recorded, unless too much time has passed, or the loop may not act any
    more as it did then, or a person has set another value since; the entry says so.
    """
    age_seconds = abs((now - entry.at).total_seconds())
    ended = "Its tick ended before the action was confirmed; not repeated"
    if setting.mode != entry.mode:
        modes = f"the loop was in mode {entry.mode}, and is in mode {setting.mode} now"
        _give_up(entry, loop, f"{ended}: {modes}.")
    elif entry.parameters.get("manual") != setting.manual:
        _give_up(entry, loop, f"{ended}: another value is set by hand now.")
    elif age_seconds > max(REPEAT_INTERVALS * loop.interval_seconds, REPEAT_SECONDS):
        _give_up(entry, loop, f"{ended} after {age_seconds:.0f} s.")
    elif _is_applied(entry, loop, plant):
        ledger.confirm(entry)


def _is_applied(entry: LedgerEntry, loop: Loop, plant: Plant) -> bool:
    """Do it; an error of the plant is the entry's, and the loop goes on at its next tick."""
    try:
        kind_of(loop.law).actuator(entry, loop, plant)
    except Exception as error:
        logger.warning("%s could not be applied: %s", loop.name, error)
        _give_up(entry, loop, f"{type(error).__name__}: {error}")
        return False
    return True


def _give_up(entry: LedgerEntry, loop: Loop, error: str) -> None:
    """The entry says why its action was not applied, and the law does not go on as if it had been."""
    ledger.fail(entry, error)
    loop_memory.undo(entry, loop)


def _propose(entry: LedgerEntry, proposer: Proposer, snapshot: Snapshot, now: datetime) -> None:
    """Put advice before a person; what can't be proposed is the entry's error."""
    try:
        proposer(entry, snapshot, now)
    except WeirError as error:
        ledger.fail(entry, str(error))
