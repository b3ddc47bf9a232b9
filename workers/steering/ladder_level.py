"""The active level of a queue's remedy ladder, as the snapshot shows it.

It is what is in force, not what the ladder advises, would do on hold, or decided in another mode than its present one.
"""

from controllers.shedding.ladder import LAW, LEVELS, allows
from workers.documents.loops import LoopStatus
from workers.documents.snapshot import Snapshot
from workers.models import Loop

SHED = LEVELS.index("shed") + 1


def find_active_level(queue: str, snapshot: Snapshot) -> int | None:
    """Return the highest level that the ladder, or a person in its place, has enabled.

    Return None while the level is not known, since the ladder's last tick had no valid measurement. Without an acting
    ladder, no level is enabled.
    """
    loop = _find_ladder(queue, snapshot)
    if loop is None or not loop.was_decided_in(*Loop.ACTING):
        return 0
    rung = loop.terms.get(str(LAW.actuator))
    return None if rung is None else int(rung)


def compute_closed_share(queue: str, snapshot: Snapshot) -> float:
    """Return the share of the time that producers over HTTP are to wait.

    It is all of the time if a person throttles manually.
    """
    loop = _find_ladder(queue, snapshot)
    if loop is None or not allows(find_active_level(queue, snapshot) or 0, "throttle"):
        return 0.0
    return 1.0 if loop.mode == Loop.Mode.MANUAL else float(loop.terms.get("closed_share") or 0.0)


def may_shed(queues: list[str], snapshot: Snapshot) -> bool | None:
    """Return whether the ladder of each of these queues has enabled shedding; None while unknown."""
    levels = [find_active_level(queue, snapshot) for queue in queues]
    if any(level is not None and level < SHED for level in levels):
        return False
    return None if None in levels else True


def _find_ladder(queue: str, snapshot: Snapshot) -> LoopStatus | None:
    return snapshot.loops.get(f"{LAW.name}/{queue}")
