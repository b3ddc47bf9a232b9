"""A node before and after a plan, as two points on one axis of utilisation."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Dumbbell:
    """now, after: shares of the node's capacity, None where it isn't known; so are busy and toobusy, its
    thresholds.
    """

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
        """Whether the plan leaves its points as they are."""
        return self.points == self.points_after

    @property
    def draws_line(self) -> bool:
        """Whether there is a way from one point to another."""
        return self.now is not None and self.after is not None and not self.same
