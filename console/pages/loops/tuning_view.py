"""A loop's open tuning as its page shows it: the changes, and how they performed on the following days."""

from dataclasses import dataclass
from datetime import datetime

from controllers import catalog
from workers.control import tuning as learning
from workers.models import Loop


@dataclass(frozen=True)
class TunedValue:
    """A parameter: current and new value."""

    name: str
    unit: str
    before: float
    after: float


@dataclass(frozen=True)
class ShownDay:
    """The cost of one validation day on the model, without a unit."""

    day: str
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class ShownTuning:
    """An open proposal. drift: why it can't be approved any more ("" if it can)."""

    id: int
    hash: str
    short_hash: str
    created_at: datetime
    changes: list[TunedValue]
    improvement: float
    confidence: float
    days: list[ShownDay]
    drift: str


def build_proposal(loop: Loop, now: datetime) -> ShownTuning | None:
    """Return the proposal that waits for approval; None if there is none."""
    found = learning.open_tuning(loop)
    if found is None:
        return None
    units = {parameter.name: parameter.unit for parameter in catalog.law(loop.law).parameters}
    return ShownTuning(
        id=found.pk,
        hash=found.hash,
        short_hash=found.hash[:8],
        created_at=found.created_at,
        changes=[
            TunedValue(name, units.get(name, ""), found.instead_of[name], value)
            for name, value in found.values.items()
        ],
        improvement=found.improvement,
        confidence=found.confidence,
        days=[ShownDay(**day) for day in found.days],
        drift=learning.drift(found, now),
    )
