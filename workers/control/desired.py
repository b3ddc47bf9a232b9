"""What a loop wants in force, as numbers that an autoscaler of others can poll (KEDA's `metrics-api`).

Of a loop that sets what stays (tasks, processes): what is in force and its last decision together, also
while it only advises, so that whoever polls is the one that acts. Of another: the size of its last action.
In *hold* what is in force. Where the loop knows nothing good, there is no number: who polls has a fallback
for that, and 0 would mean that nothing is needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from controllers.framework import guard
from controllers.parallelism.measured_paths import UNMEASURED
from queues.errors import WeirError
from workers.control.kinds.registry import KINDS
from workers.control.ledger import ledger
from workers.models import Loop
from workers.steering.scope import active_loops

# Then what was observed is no sound number: no valid measurement, nothing to decide, an operator that was not
# measured. Of one without tasks nothing can be: 0 would be wanted, and it would never work again.
UNSOUND = (*guard.UNASKED, UNMEASURED)
LATE_INTERVALS, LATE_SECONDS = 3.0, 15.0


class NothingDesired(WeirError):  # noqa: N818
    """A loop that has no valid decision now, and why."""


@dataclass(frozen=True)
class Desired:
    """entry: the decision, and `at` when (s since 1970). values: by operator, or by what it sets."""

    entry: int
    at: float
    values: Mapping[str, float]
    reason: str

    @property
    def total(self) -> float:
        return sum(self.values.values())


def compute_desired(loop: Loop, now: datetime) -> Desired:
    """Raises NothingDesired: it is retired, has not decided (lately), or its measurement is invalid."""
    entry = ledger.last_entry(loop)
    if not active_loops().filter(pk=loop.pk).exists():
        raise NothingDesired(f"{loop.name} is retired: its target is gone.")
    if entry is None or entry.observation is None:
        raise NothingDesired(f"{loop.name} has not decided yet.")
    age_seconds = abs((now - (loop.ticked_at or entry.at)).total_seconds())
    if age_seconds > max(LATE_SECONDS, LATE_INTERVALS * loop.interval_seconds):
        raise NothingDesired(
            f"{loop.name} decided {age_seconds:.0f} s ago, due each {loop.interval_seconds} s."
        )
    if entry.limited_by in UNSOUND:
        raise NothingDesired(f"{loop.name}: {entry.limited_by}. {entry.reason}")
    action = None if entry.mode == Loop.Mode.HOLD else entry.action
    values = KINDS[loop.law].desired(entry.observation, action or {})
    return Desired(entry.pk, entry.at.timestamp(), values, entry.reason)
