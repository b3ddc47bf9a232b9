"""How loops spend error budgets (`controllers.design.error_budget`): never past them, and never all at once.

What is left L of a budget may be spent at the rate at which it would last `budget_seconds` H:

    allowed per second = L / H        so L falls as e^(-t / H) at most, and is never used up

What is shed is booked some seconds τ after it is decided (a measured rate is a mean of ten seconds), so up to
τ / H of what is left is spent beyond what is known: a small part, while H is long beside τ. A level of the
remedy ladder is not enabled with less than `LEAST_TO_ENABLE` of its budget, and gives up at `LEAST_TO_KEEP`.
A budget of which nothing is known allows nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from controllers.framework.parameter import Parameter

LEVELS = ("throttle", "shed")
LEAST_TO_KEEP, LEAST_TO_ENABLE = 0.01, 0.02
BUDGET_SECONDS = Parameter(
    "budget_seconds",
    "s",
    "What is left of an error budget is spent no faster than that it would last so long.",
    3_600.0,
    60.0,
    7_776_000.0,
)
BUDGETS = Parameter(
    "budgets",
    "rows",
    "Error budgets of objectives that pay for throttling (seconds) or shedding (events); none: no limit.",
    [],
    kind="rows",
    items=(
        Parameter("level", "level", "What it pays for.", kind="choice", choices=LEVELS, required=True),
        Parameter("name", "name", "The objective's.", kind="text", required=True),
        Parameter("left", "s or events", "How much more may be bad.", None, -1e15, 1e15, required=True),
        Parameter(
            "share", "share", "Of the budget that is left; null: nothing was counted.", None, -1e15, 1.0
        ),
    ),
)
Rows = Sequence[Mapping[str, Any]]


def allowed_per_second(rows: Rows, level: str, budget_seconds: float) -> float | None:
    """How much a level may spend each second; None where no budget pays for it."""
    left = [max(0.0, float(row["left"])) for row in rows if row["level"] == level]
    return min(left) / budget_seconds if left else None


def used_up(rows: Rows, level: str, is_enabled: bool) -> str | None:
    """The objective with too little left for a level to be enabled, or to stay so; None for none."""
    least = LEAST_TO_KEEP if is_enabled else LEAST_TO_ENABLE
    return next(
        (
            str(row["name"])
            for row in rows
            if row["level"] == level and (row["share"] is None or row["share"] < least)
        ),
        None,
    )
