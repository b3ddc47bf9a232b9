"""Desired values of a loop, as numbers that an external autoscaler can poll (KEDA's `metrics-api`).

For a loop that sets lasting values (tasks, processes), the result combines the values in force and the last decision,
also in *advise*, where the poller acts. For other loops it is the size of the last action. In
*hold* it is the value in force. Without a valid decision there is no number: a poller has a fallback for
that, and 0 would mean that nothing is needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from common.errors import WeirError
from controllers.framework import guard
from controllers.parallelism.inputs import UNMEASURED
from workers.control.kinds.registry import find_display
from workers.control.ledger import ledger
from workers.models import Loop
from workers.steering.scope import list_active_loops

# In these cases the observation yields no reliable number: no valid measurement, nothing to decide, or an
# operator without a measurement. An operator without tasks cannot be measured: its desired value would be 0,
# and it would never start again.
UNSOUND = (*guard.UNASKED, UNMEASURED)
LATE_INTERVALS, LATE_SECONDS = 3.0, 15.0


class NothingDesired(WeirError):  # noqa: N818
    """Raised when a loop has no valid decision now; says why."""


@dataclass(frozen=True)
class DesiredValues:
    """Desired values of a loop.

    entry: the decision, taken `at` (s since 1970). values: by operator, or by the name of what the loop sets.
    """

    entry: int
    at: float
    values: Mapping[str, float]
    reason: str

    @property
    def total(self) -> float:
        return sum(self.values.values())


def compute_desired(loop: Loop, now: datetime) -> DesiredValues:
    """Compute the desired values of a loop.

    Raises NothingDesired where the loop is retired, has not decided recently, or has an invalid measurement.
    """
    entry = ledger.find_last_entry(loop)
    if not list_active_loops().filter(pk=loop.pk).exists():
        raise NothingDesired(f"{loop.name} is retired: its target no longer exists.")
    if entry is None or entry.observation is None:
        raise NothingDesired(f"{loop.name} has not decided yet.")
    age_seconds = abs((now - (loop.ticked_at or entry.at)).total_seconds())
    if age_seconds > max(LATE_SECONDS, LATE_INTERVALS * loop.interval_seconds):
        raise NothingDesired(
            f"{loop.name} last decided {age_seconds:.0f} s ago; it is due every {loop.interval_seconds} s."
        )
    if entry.limited_by in UNSOUND:
        raise NothingDesired(f"{loop.name}: {entry.limited_by}. {entry.reason}")
    action = None if entry.mode == Loop.Mode.HOLD else entry.action
    values = find_display(loop.law, loop.target).desired(entry.observation, action or {})
    return DesiredValues(entry.pk, entry.at.timestamp(), values, entry.reason)
