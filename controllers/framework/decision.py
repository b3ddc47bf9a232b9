"""Decisions: what a law wants to do, or nothing, and always the reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Json = Any


@dataclass(frozen=True)
class Expectation:
    """Expected effect of an action: `metric` moves in `direction` by `amount` (its unit) within a time.

    `before` is the value to compare with, if that is not the metric at the time of the action.
    """

    metric: str
    direction: Literal["up", "down"]
    amount: float
    within_seconds: float
    before: float | None = None

    def to_json(self) -> dict[str, Json]:
        """Return a plain object, as the ledger stores it."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Decision:
    """A law's answer. `raw` is the value before the guard; `limited_by` names what limited it."""

    action: Mapping[str, Json] | None
    reason: str
    terms: Mapping[str, Json] = field(default_factory=dict)
    limited_by: str | None = None
    raw: float | None = None
    expected: Expectation | None = None

    def to_json(self) -> dict[str, Json]:
        """Return what `manage.py decide` prints: the four keys of the contract, then raw and expected."""
        return {
            "action": None if self.action is None else dict(self.action),
            "reason": self.reason,
            "terms": dict(self.terms),
            "limited_by": self.limited_by,
            "raw": self.raw,
            "expected": None if self.expected is None else self.expected.to_json(),
        }
