"""Loops worst first: what did harm, what is late, what had no effect, what a person holds, what acted."""

from workers.documents.loops import LoopStatus
from workers.models import LedgerEntry, Loop

LATE_INTERVALS = 2.0
GRACE_SECONDS = 2.0  # a snapshot's loops are as old as that
VERDICTS = {
    LedgerEntry.Verdict.HARMFUL: 5.0,
    LedgerEntry.Verdict.INEFFECTIVE: 3.0,
    LedgerEntry.Verdict.CHECKING: 1.0,
    LedgerEntry.Verdict.EFFECTIVE: 1.0,
}
LATE, HANDED_OVER, OVERRIDDEN = 4.0, 2.0, 1.5


def late_now(status: LoopStatus | None, interval_seconds: float, at: float | None) -> float:
    """By how many seconds its next tick is late in a snapshot of the time `at`; 0: it is not, or has none."""
    if status is None or status.at is None or at is None:
        return 0.0
    since = at - status.at
    return since - interval_seconds if since > LATE_INTERVALS * interval_seconds + GRACE_SECONDS else 0.0


def badness_of_loop(status: LoopStatus | None, late_seconds: float) -> float:
    """The worst that can be said of it."""
    if status is None:
        return 0.0
    return max(
        VERDICTS.get(LedgerEntry.Verdict(status.verdict), 0.0) if status.verdict else 0.0,
        LATE if late_seconds else 0.0,
        HANDED_OVER if status.mode in Loop.HANDED_OVER else 0.0,
        OVERRIDDEN if status.overrides else 0.0,
    )
