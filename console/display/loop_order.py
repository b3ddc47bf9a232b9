"""Loops, the worst first: harmful, late, ineffective, held by a person, acted."""

from workers.documents.loops import LoopStatus
from workers.models import LedgerEntry, Loop

LATE_INTERVALS = 2.0
GRACE_SECONDS = 2.0  # age of a snapshot's loops
VERDICTS = {
    LedgerEntry.Verdict.HARMFUL: 5.0,
    LedgerEntry.Verdict.INEFFECTIVE: 3.0,
    LedgerEntry.Verdict.CHECKING: 1.0,
    LedgerEntry.Verdict.EFFECTIVE: 1.0,
}
LATE, HANDED_OVER, OVERRIDDEN = 4.0, 2.0, 1.5


def compute_tick_lateness(status: LoopStatus | None, interval_seconds: float, at: float | None) -> float:
    """Return by how many seconds the loop's next tick is late in a snapshot of the time `at`.

    The result is 0 if the tick is on time, or if this is unknown.
    """
    if status is None or status.at is None or at is None:
        return 0.0
    since = at - status.at
    return since - interval_seconds if since > LATE_INTERVALS * interval_seconds + GRACE_SECONDS else 0.0


def compute_loop_severity(status: LoopStatus | None, late_seconds: float) -> float:
    """Return the severity of the loop's worst problem."""
    if status is None:
        return 0.0
    return max(
        VERDICTS.get(LedgerEntry.Verdict(status.verdict), 0.0) if status.verdict else 0.0,
        LATE if late_seconds else 0.0,
        HANDED_OVER if status.mode in Loop.HANDED_OVER else 0.0,
        OVERRIDDEN if status.overrides else 0.0,
    )
