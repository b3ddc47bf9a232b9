"""Limits on how fast loops spend error budgets (`workers.objectives.error_budget`): never all, never at once.

The rest L of a budget may be spent at the rate at which it would last `budget_seconds` H:

    allowed per second = L / H        so L falls as e^(-t / H) at most, and is never used up

Shed events are counted some seconds τ after the decision (a measured rate is a mean of ten seconds), so up to τ / H of
the rest is spent in addition: a small part, if H is long compared with τ. A level of the remedy ladder is not enabled
with less than `MIN_TO_ENABLE` of its budget, and ends at `MIN_TO_KEEP`. A budget without counts allows nothing.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from common.parameter import value

MIN_TO_KEEP, MIN_TO_ENABLE = 0.01, 0.02
Level = Literal["throttle", "shed"]
BudgetSeconds = Annotated[
    float,
    value(
        "s", "Minimum time that the remaining error budget would last at its current rate of use.", 60.0, 7_776_000.0
    ),
]
BUDGET_SECONDS = 3_600.0


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    level: Annotated[Level, value("level", "Level that the budget limits.")]
    name: Annotated[str, value("name", "Name of the objective.")]
    left: Annotated[float, value("s or events", "Remaining budget.", -1e15, 1e15)]
    share: Annotated[
        float | None, value("share", "Share of the budget that is left; null: nothing was counted.", -1e15, 1.0)
    ] = None


Budgets = Annotated[
    tuple[Budget, ...] | None,
    value("rows", "Error budgets that limit throttling (seconds) or shedding (events); empty: no limit."),
]


def compute_allowed_per_second(budgets: Sequence[Budget] | None, level: Level, budget_seconds: float) -> float | None:
    """Return how much a level may spend per second; None if no budget pays for it."""
    left = [max(0.0, budget.left) for budget in budgets or () if budget.level == level]
    return min(left) / budget_seconds if left else None


def find_exhausted_objective(budgets: Sequence[Budget] | None, level: Level, is_enabled: bool) -> str | None:
    """Return an objective whose budget is too small to enable or keep a level; None if there is none."""
    least = MIN_TO_KEEP if is_enabled else MIN_TO_ENABLE
    short = (
        budget.name
        for budget in budgets or ()
        if budget.level == level and (budget.share is None or budget.share < least)
    )
    return next(short, None)
