"""A node before and after a plan, as two points on one axis of utilization."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Dumbbell:
    """now, after: shares of the node's capacity, None if unknown; busy, toobusy: its thresholds, likewise."""

    name: str
    now: float | None
    after: float | None
    state: str | None
    state_after: str | None
    points: int
    points_after: int
    busy: float | None
    toobusy: float | None

    @property
    def same(self) -> bool:
        """Return whether the plan leaves its points unchanged."""
        return self.points == self.points_after

    @property
    def draws_line(self) -> bool:
        """Return whether the two points are connected by a line."""
        return self.now is not None and self.after is not None and not self.same
