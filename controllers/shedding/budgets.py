"""Limits on how fast loops spend error budgets (`workers.objectives.error_budget`): never all, never at once.

The rest L of a budget may be spent at the rate at which it would last `budget_seconds` H:

    allowed per second = L / H        so L falls as e^(-t / H) at most, and is never used up

Shed events are counted some seconds τ after the decision (a measured rate is a mean of ten seconds), so up to τ / H of
the rest is spent in addition: a small part, if H is long compared with τ. A level of the remedy ladder is not enabled
with less than `MIN_TO_ENABLE` of its budget, and ends at `MIN_TO_KEEP`. A budget without counts allows nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from common.parameter import Parameter

LEVELS = ("throttle", "shed")
MIN_TO_KEEP, MIN_TO_ENABLE = 0.01, 0.02
BUDGET_SECONDS = Parameter(
    "budget_seconds",
    "s",
    "Minimum time that the remaining error budget would last at its current rate of use.",
    3_600.0,
    60.0,
    7_776_000.0,
)
BUDGETS = Parameter(
    "budgets",
    "rows",
    "Error budgets that limit throttling (seconds) or shedding (events); empty: no limit.",
    [],
    kind="rows",
    items=(
        Parameter("level", "level", "Level that the budget limits.", kind="choice", choices=LEVELS, required=True),
        Parameter("name", "name", "Name of the objective.", kind="text", required=True),
        Parameter("left", "s or events", "Remaining budget.", None, -1e15, 1e15, required=True),
        Parameter("share", "share", "Share of the budget that is left; null: nothing was counted.", None, -1e15, 1.0),
    ),
)
Rows = Sequence[Mapping[str, Any]]


def compute_allowed_per_second(rows: Rows, level: str, budget_seconds: float) -> float | None:
    """Return how much a level may spend per second; None if no budget pays for it."""
    left = [max(0.0, float(row["left"])) for row in rows if row["level"] == level]
    return min(left) / budget_seconds if left else None


def find_exhausted_objective(rows: Rows, level: str, is_enabled: bool) -> str | None:
    """Return an objective whose budget is too small to enable or keep a level; None if there is none."""
    least = MIN_TO_KEEP if is_enabled else MIN_TO_ENABLE
    return next(
        (str(row["name"]) for row in rows if row["level"] == level and (row["share"] is None or row["share"] < least)),
        None,
    )
