"""The score of a drill: up to 30 points to notice, 50 for the right action, and 20 for no wrong action."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["right", "no effect", "harmful", "neutral"]


@dataclass(frozen=True)
class TimedPoints:
    """All points within `full_seconds`, none after `none_seconds`, and a linear decrease between."""

    points: int
    full_seconds: float
    none_seconds: float

    def compute(self, seconds: float | None) -> int:
        """Return the points for a time; none if it did not happen."""
        if seconds is None:
            return 0
        left = (self.none_seconds - seconds) / (self.none_seconds - self.full_seconds)
        return round(self.points * min(max(left, 0.0), 1.0))


NOTICE = TimedPoints(30, 30.0, 300.0)
RIGHT_ACTION = TimedPoints(50, 60.0, 600.0)
NO_WRONG_ACTION = 20
DEDUCTIONS: dict[Verdict, int] = {"no effect": 5, "harmful": 10}
MAX_SCORE = NOTICE.points + RIGHT_ACTION.points + NO_WRONG_ACTION


@dataclass(frozen=True)
class Score:
    """The points by part."""

    notice: int
    right_action: int
    no_wrong_action: int

    @property
    def total(self) -> int:
        return self.notice + self.right_action + self.no_wrong_action


def compute_score(notice_seconds: float | None, action_seconds: float | None, verdicts: list[Verdict]) -> Score:
    """Return the score; times are in seconds after the alert.

    Who neither noticed nor acted gets no points for having done nothing wrong.
    """
    if notice_seconds is None and action_seconds is None:
        return Score(0, 0, 0)
    deduction = sum(DEDUCTIONS.get(verdict, 0) for verdict in verdicts)
    return Score(
        NOTICE.compute(notice_seconds if notice_seconds is not None else action_seconds),
        RIGHT_ACTION.compute(action_seconds),
        max(0, NO_WRONG_ACTION - deduction),
    )
