"""What a law answers: what to do, or nothing, and always why."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Json = Any


@dataclass(frozen=True)
class Expected:
    """What should come of an action: `metric` moves in `direction` by `amount` (its unit) in time. `before`:
    what it is compared with, where that is not the metric when the action is taken."""

    metric: str
    direction: Literal["up", "down"]
    amount: float
    within_seconds: float
    before: float | None = None

    def to_json(self) -> dict[str, Json]:
        """A plain object, as the ledger keeps it."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Decision:
    """A law's answer. `raw` is the value before the guard; `limited_by` names what kept it from more."""

    action: Mapping[str, Json] | None
    reason: str
    terms: Mapping[str, Json] = field(default_factory=dict)
    limited_by: str | None = None
    raw: float | None = None
    expected: Expected | None = None

    def to_json(self) -> dict[str, Json]:
        """The form `manage.py decide` prints: the contract's four keys, then raw and expected."""
        return {
            "action": None if self.action is None else dict(self.action),
            "reason": self.reason,
            "terms": dict(self.terms),
            "limited_by": self.limited_by,
            "raw": self.raw,
            "expected": None if self.expected is None else self.expected.to_json(),
        }
