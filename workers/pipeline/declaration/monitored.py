"""What a declaration has monitored; see `monitor`."""

from dataclasses import dataclass

SLOTS = 12  # of a window: it slides by a twelfth


@dataclass(frozen=True)
class Monitored:
    """criterion: what rules name. column: whose quantile it is, of events of `type` (None: of all)."""

    criterion: str
    column: str
    quantile: float
    window_seconds: float
    type: str | None = None

    def slot(self, now_seconds: float) -> int:
        return int(now_seconds // (self.window_seconds / SLOTS))
