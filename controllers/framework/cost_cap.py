"""The most that a loop's actuator may cost in an hour. Pure.

What an actuator costs at once (a worker that is started) is added up in slots of five minutes. The newest
thirteen hold all that was spent in the hour that ends now:

    spent + value · unit cost ≤ cap

What an actuator costs as long as it stays (processes) needs no memory: value · unit cost of an hour ≤ cap.
"""

from collections.abc import Mapping, Sequence

from controllers.framework.decision import Json

SLOT_SECONDS, SLOTS = 300.0, 13


def spent_until(state: Mapping[str, Json], now_seconds: float) -> tuple[list[float], int]:
    """Money in each slot, the newest last, and the newest's number. Where a clock was set back, what was
    spent counts for an hour from then; where it was ahead by more, nothing is known of the hour now.
    """
    slot, before = int(now_seconds // SLOT_SECONDS), state.get("spent_slot")
    kept: Sequence[float] = state.get("spent") or []
    if before is None or not kept:
        return [0.0] * SLOTS, slot
    if before - slot >= SLOTS:
        return [0.0] * SLOTS, slot
    passed = min(max(0, slot - before), SLOTS)
    return [*kept, *([0.0] * passed)][-SLOTS:], slot


def most(cap: float, unit_cost: float, spent: Sequence[float]) -> float:
    """Units that the cap still leaves; a price of 0 leaves any."""
    return max(0.0, cap - sum(spent)) / unit_cost if unit_cost > 0 else float("inf")


def with_spent(spent: Sequence[float], amount: float) -> list[float]:
    """With what is spent now."""
    return [*spent[:-1], spent[-1] + amount]
