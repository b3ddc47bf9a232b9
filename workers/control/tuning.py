"""Tuning from the ledger: a loop's parameters tuned on its record, and proposed where they perform better.

1. The **record** is the ledger's observations of a loop: some parts of each day, chosen by a seed.
2. Values are **searched** on the days of the first half (`controllers.design.tuning`), on a plant model that
   responds to decisions (`TuningModel`, declared by the kind of loop).
3. They are **validated** on the days of the second half, which the search has not seen, against the values in
   force.
4. Values that cost less by `MIN_IMPROVEMENT`, with `MIN_CONFIDENCE`, become a proposal with a hash of all
   its inputs. A person approves the hash; the values are then set as overrides that expire.

Otherwise nothing is proposed, and the result says why.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from operator import itemgetter
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from common.errors import BadInput
from common.parameter import build
from controllers import catalog
from controllers.design import tuning as design
from controllers.design.tuning import EVALUATIONS, Improvement, SearchRange
from controllers.framework import code
from controllers.framework.reason import format_percent
from workers.control.kinds.registry import KINDS, get_rest_seconds
from workers.control.ledger import folds
from workers.control.parts.kind import Floats, Observed, TuningModel
from workers.models import Loop, Tuning
from workers.steering import overrides

STRETCH_SECONDS, STRETCHES_A_DAY = 1_200, 3
# The minimum recorded share of a part, and the minimum number of recorded days of each half.
MIN_RECORDED, MIN_DAYS = 0.8, 3
MAX_INTERVALS = 3.0  # between two entries; time in a longer gap is not recorded
MIN_IMPROVEMENT, MIN_CONFIDENCE = 0.02, 0.95
Checked = Callable[[], None]


@dataclass(frozen=True)
class RecordedDay:
    """A day of a loop, as parts with the arrivals of each second."""

    day: date
    stretches: list[Floats]


@dataclass(frozen=True)
class LearnedValues:
    """The values that a loop's record supports instead of those in force: better values, or none and `why`."""

    loop: Loop
    why: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    instead_of: Mapping[str, Any] = field(default_factory=dict)
    days: list[dict[str, Any]] = field(default_factory=list)
    improvement: Improvement | None = None


def list_tunable_loops() -> list[Loop]:
    """Return the loops of kinds that can be tuned, by name."""
    laws = [name for name, kind in KINDS.items() if kind.tuning.rehearsal is not None]
    return list(Loop.objects.filter(law__in=laws).exclude(target__has_key="plant").order_by("name"))


def learn(
    loop: Loop, now: datetime, days: int, check: Checked = lambda: None, evaluations: int = EVALUATIONS
) -> LearnedValues:
    """Search on `days` days and validate on the following `days` days, of which the last is yesterday.

    This changes nothing. `check` is called before each evaluation and may raise. Raises BadInput for a loop of a kind
    that cannot be tuned.
    """
    kind = KINDS.get(loop.law)
    rehearsal = None if kind is None or "plant" in loop.target else kind.tuning.rehearsal
    if rehearsal is None:
        known = ", ".join(name for name, kind in KINDS.items() if kind.tuning.rehearsal is not None)
        raise BadInput("loop", f"{loop.name} cannot be tuned; laws that can be tuned: {known}.")
    law = catalog.get_law(loop.law)
    in_force = overrides.get_effective_parameters(law, loop.parameters, overrides.list_effective(loop, now), now)
    searched, proven = (_load_recorded_days(loop, rehearsal, now, days, back) for back in (2 * days, days))
    if (recorded := min(len(searched), len(proven))) < MIN_DAYS:
        return LearnedValues(loop, f"collecting data: {recorded} of {MIN_DAYS} days")

    def compute_costs(values: Mapping[str, Any], of: Sequence[RecordedDay]) -> list[float]:
        check()
        return [rehearsal.cost(build(law.Parameters, {**in_force, **values}), day.stretches) for day in of]

    begin = {name: in_force[name] for name in rehearsal.tuned}
    ranges = [
        SearchRange.build_around(next(parameter for parameter in law.parameters if parameter.name == name), value)
        for name, value in begin.items()
    ]
    values = design.search(lambda tried: sum(compute_costs(tried, searched)), ranges, begin, loop.pk, evaluations)
    changed = {name: value for name, value in values.items() if value != in_force[name]}
    if not changed:
        return LearnedValues(loop, "no tested values cost less than the current values")
    catalog.read_parameters(law, {**in_force, **changed})
    before, after = compute_costs({}, proven), compute_costs(values, proven)
    improvement = design.compute_improvement(before, after, seed=loop.pk)
    if improvement.share < MIN_IMPROVEMENT or improvement.confidence < MIN_CONFIDENCE:
        words = ", ".join(f"{name} {value:g}" for name, value in changed.items())
        return LearnedValues(
            loop,
            f"{words} would change the cost by {-100 * improvement.share:+.1f} % on the following"
            f" days, confidence {format_percent(improvement.confidence)};"
            f" required: {-100 * MIN_IMPROVEMENT:+.0f} % and {format_percent(MIN_CONFIDENCE)}",
        )
    of_days = [
        {"day": day.day.isoformat(), "before": round(one, 6), "after": round(other, 6)}
        for day, one, other in zip(proven, before, after, strict=True)
    ]
    return LearnedValues(loop, "", changed, {name: in_force[name] for name in changed}, of_days, improvement)


@transaction.atomic
def propose(learned: LearnedValues, now: datetime) -> Tuning | None:
    """Propose the learned values to a person, replacing an older proposal for the loop.

    Return None where there is nothing to propose.
    """
    if learned.improvement is None:
        return None
    rests_on = {
        "loop": learned.loop.name,
        "values": dict(learned.values),
        "instead_of": dict(learned.instead_of),
        "days": learned.days,
        "code": code.compute_code_version(),
    }
    digest = hashlib.sha256(json.dumps(rests_on, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    learned.loop.tunings.filter(state=Tuning.State.PROPOSED).update(
        state=Tuning.State.VOID, decided_at=now, note="Replaced by a newer tuning."
    )
    return Tuning.objects.create(
        loop=learned.loop,
        values=rests_on["values"],
        instead_of=rests_on["instead_of"],
        days=learned.days,
        improvement=round(learned.improvement.share, 4),
        confidence=round(learned.improvement.confidence, 4),
        hash=digest,
        created_at=now,
    )


def open_tuning(loop: Loop) -> Tuning | None:
    """Return the proposal that waits for a decision."""
    return loop.tunings.filter(state=Tuning.State.PROPOSED).order_by("-pk").first()


def describe_drift(tuning: Tuning, now: datetime) -> str:
    """Return why the proposal is outdated, else "".

    It is outdated when the values that it was compared with are no longer in force.
    """
    loop = tuning.loop
    held = overrides.list_effective(loop, now)
    in_force = overrides.get_effective_parameters(catalog.get_law(loop.law), loop.parameters, held, now)
    other = [name for name, value in tuning.instead_of.items() if in_force.get(name) != value]
    return f"the loop's values have changed since ({', '.join(other)})" if other else ""


def _load_recorded_days(loop: Loop, rehearsal: TuningModel, now: datetime, days: int, back: int) -> list[RecordedDay]:
    """Load `days` days, starting `back` days ago, without days of which no part is recorded."""
    first = now.astimezone(UTC).date() - timedelta(days=back)
    days_recorded = (_load_recorded_day(loop, rehearsal, first + timedelta(days=number)) for number in range(days))
    return [day for day in days_recorded if day.stretches]


def _load_recorded_day(loop: Loop, rehearsal: TuningModel, day: date) -> RecordedDay:
    midnight = datetime.combine(day, time(), UTC)
    loads = (rehearsal.load(observed) for observed in _sample_observations(loop, midnight))
    return RecordedDay(day, [load for load in loads if load.size])


def _sample_observations(loop: Loop, midnight: datetime) -> Iterator[list[Observed]]:
    """Return the observations in some parts of a day, chosen anew for each day of each loop."""
    longest_seconds = MAX_INTERVALS * loop.interval_seconds + get_rest_seconds(loop.law)
    for place in _draw_places(f"{loop.name} {midnight:%F}"):
        begin = midnight + timedelta(seconds=place * STRETCH_SECONDS)
        end = begin + timedelta(seconds=STRETCH_SECONDS)
        entries = folds.iterate_ticks(loop.entries.all(), begin, end, only=("at", "observation"))
        rows = sorted(((entry.at, entry.observation) for entry in entries), key=itemgetter(0))
        observed = [(at.timestamp(), seen) for at, seen in rows if seen and not seen.get("unfit")]
        gaps = [after - at for (at, _), (after, _) in itertools.pairwise(observed)]
        if sum(gap for gap in gaps if gap <= longest_seconds) >= MIN_RECORDED * STRETCH_SECONDS:
            yield observed


def _draw_places(words: str) -> list[int]:
    """Choose evenly spaced parts of a day, with an offset that depends on the words."""
    of_day = 86_400 // STRETCH_SECONDS
    offset = int.from_bytes(hashlib.sha256(words.encode()).digest()[:4])
    return sorted((offset + number * of_day // STRETCHES_A_DAY) % of_day for number in range(STRETCHES_A_DAY))


def select_due_tunings(before: datetime) -> QuerySet[Tuning]:
    """Return the tunings that were decided before this time, except the newest of each loop."""
    newer = Tuning.objects.filter(loop=OuterRef("loop"), pk__gt=OuterRef("pk"))
    decided = Tuning.objects.filter(decided_at__lt=before).exclude(state=Tuning.State.PROPOSED)
    return decided.filter(Exists(newer))
