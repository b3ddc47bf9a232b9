"""The cost cap: the maximum cost of a loop's actuator per hour. Pure.

Immediate costs of an actuator (a worker that is started) are added up in slots of five minutes. The newest thirteen
slots hold everything that was spent in the last hour:

    spent + value · unit cost ≤ cap

Lasting costs of an actuator (processes) need no memory: value · unit cost per hour ≤ cap.
"""

from collections.abc import Mapping, Sequence

from controllers.framework.decision import Json

SLOT_SECONDS, SLOTS = 300.0, 13


def roll_forward(state: Mapping[str, Json], now_seconds: float) -> tuple[list[float], int]:
    """Return the money in each slot, newest last, and the number of the newest.

    After a clock was set back, spending counts for an hour from then; if it was further ahead, nothing is known.
    """
    slot, before = int(now_seconds // SLOT_SECONDS), state.get("spent_slot")
    kept: Sequence[float] = state.get("spent") or []
    if before is None or not kept:
        return [0.0] * SLOTS, slot
    if before - slot >= SLOTS:
        return [0.0] * SLOTS, slot
    passed = min(max(0, slot - before), SLOTS)
    return [*kept, *([0.0] * passed)][-SLOTS:], slot


def compute_allowed_units(cap: float, unit_cost: float, spent: Sequence[float]) -> float:
    """Return the units that the cap still allows; with a price of 0, any number."""
    return max(0.0, cap - sum(spent)) / unit_cost if unit_cost > 0 else float("inf")


def add_spent(spent: Sequence[float], amount: float) -> list[float]:
    """Add the amount that is spent now."""
    return [*spent[:-1], spent[-1] + amount]
