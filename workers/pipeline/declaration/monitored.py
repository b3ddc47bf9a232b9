"""The monitored values of a declaration; see `monitor`."""

from dataclasses import dataclass

SLOTS = 12  # slots of a window: it slides by a twelfth


@dataclass(frozen=True)
class MonitoredQuantile:
    """A monitored quantile.

    criterion: the name that rules refer to. column: the column of which the quantile is computed, for events of `type`
    (None: for all events).
    """

    criterion: str
    column: str
    quantile: float
    window_seconds: float
    type: str | None = None

    def compute_slot(self, now_seconds: float) -> int:
        return int(now_seconds // (self.window_seconds / SLOTS))
