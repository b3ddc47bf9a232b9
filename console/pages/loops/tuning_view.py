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
    tuning = learning.open_tuning(loop)
    if tuning is None:
        return None
    units = {parameter.name: parameter.unit for parameter in catalog.get_law(loop.law).parameters}
    return ShownTuning(
        id=tuning.pk,
        hash=tuning.hash,
        short_hash=tuning.hash[:8],
        created_at=tuning.created_at,
        changes=[
            TunedValue(name, units.get(name, ""), tuning.instead_of[name], value)
            for name, value in tuning.values.items()
        ],
        improvement=tuning.improvement,
        confidence=tuning.confidence,
        days=[ShownDay(**day) for day in tuning.days],
        drift=learning.describe_drift(tuning, now),
    )
