"""The decision of a tick for one loop, before anything is written: observation, decision, guard."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from controllers import catalog
from controllers.framework import guard
from controllers.framework.guard import GuardedDecision, ObservationQuality
from controllers.framework.law import Law
from controllers.framework.sensed import Counters, Measurement
from workers.control import loop_memory
from workers.control.kinds.registry import get_kind
from workers.control.ledger import ledger
from workers.control.parts import quality
from workers.control.setting import TickSetting
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop, Override
from workers.steering import plant_settings

Mode = Loop.Mode


@dataclass(frozen=True)
class EvaluatedTick:
    """The decision of one loop's tick.

    loop: as it was read under the lease with number `fence`; before: the number that it had then. state: what the loop
    remembers from now on. entry: the ledger entry, not stored yet. at_rest: whether the next ticks may skip writing
    while there is nothing to do.
    """

    loop: Loop
    fence: int
    before: int
    state: dict[str, Any]
    entry: LedgerEntry
    at_rest: bool = False


def decide(
    loop: Loop, fence: int, setting: TickSetting, in_force: list[Override], snapshot: Snapshot, now: datetime
) -> EvaluatedTick:
    """Observe, decide, and guard for one loop. Raises what a sensor or a law raises."""
    law, kind = catalog.get_law(loop.law), get_kind(loop.law)
    before = loop_memory.load_memory(loop, law, setting.mode, setting.parameters)
    sensed = _observe(loop, snapshot, setting, before["sensor"], now)
    guarded = _decide(law, setting, before, sensed, now)
    entry = ledger.build_entry(
        loop,
        at=now,
        fence=fence,
        mode=setting.mode,
        parameters=setting.build_record(),
        state_before=before,
        observation={**sensed.observation, **_build_quality(loop, sensed.measured, setting, snapshot, now)},
        guarded=guarded,
        reason=setting.format_reason(guarded.decision.reason, in_force, now),
        baseline=kind.readings(loop.target, snapshot),
    )
    state = loop_memory.build_memory(setting.mode, before, guarded, sensed)
    return EvaluatedTick(loop, fence, loop.fence, state, entry, _is_at_rest(entry, loop, in_force, snapshot))


def _is_at_rest(entry: LedgerEntry, loop: Loop, in_force: list[Override], snapshot: Snapshot) -> bool:
    """Return whether the law itself decided to do nothing, with nothing limiting it.

    A law that acts at every tick also counts when there was nothing to decide.
    """
    by_itself = entry.mode in (Mode.AUTO, Mode.ADVISE) and not in_force
    does_nothing = entry.action is None or not get_kind(loop.law).display.is_news
    return by_itself and does_nothing and entry.limited_by is None and rests(loop, snapshot)


def rests(loop: Loop, snapshot: Snapshot) -> bool:
    """Return whether the loop's kind has nothing to decide in this snapshot."""
    kind = get_kind(loop.law)
    return kind.at_rest is not None and kind.at_rest(loop.target, snapshot)


def _observe(
    loop: Loop, snapshot: Snapshot, setting: TickSetting, counters: Counters | None, now: datetime
) -> Measurement:
    """Return the loop's observation.

    It has the sensor's reading, the outcome of the loop's proposals, and start-up excuses.
    """
    kind = get_kind(loop.law)
    sensed = kind.sensor(loop.target, snapshot, counters, now.timestamp())
    if kind.recall is not None:
        recalled = kind.recall(loop, setting.mode, sensed.observation)
        sensed = replace(sensed, observation={**sensed.observation, **recalled})
    measured = quality.excuse_start(sensed.measured, loop.target, snapshot, now.timestamp())
    return replace(sensed, measured=replace(measured, unit_cost=_compute_unit_cost(loop, snapshot, setting)))


def _compute_unit_cost(loop: Loop, snapshot: Snapshot, setting: TickSetting) -> float | None:
    """Return the price of one unit of the actuator where a cost cap needs it; None where it has no price."""
    hours = get_kind(loop.law).tuning.unit_hours
    if not setting.guard["cost_cap"] or hours is None:
        return None
    of_one, price = (
        hours(loop.target, snapshot, setting.parameters),
        plant_settings.get_setting_value("price.worker_hour"),
    )
    return None if of_one is None or price is None else float(of_one * price)


def _decide(
    law: Law, setting: TickSetting, before: dict[str, Any], sensed: Measurement, now: datetime
) -> GuardedDecision:
    return guard.decide(
        law,
        setting.parameters,
        before["law"],
        sensed.observation,
        settings=setting.guard,
        guard_state=before["guard"],
        now_seconds=now.timestamp(),
        measured=sensed.measured,
        manual=setting.manual,
        applies=setting.mode != Mode.ADVISE,
    )


def _build_quality(
    loop: Loop, measured: ObservationQuality, setting: TickSetting, snapshot: Snapshot, now: datetime
) -> dict[str, Any]:
    """Return the quality of the measurement as stored in the ledger, with any lateness and cause."""
    since = None if loop.ticked_at is None else abs((now - loop.ticked_at).total_seconds())
    late = quality.compute_late_seconds(since, loop.interval_seconds)
    stale = float(setting.guard["stale_seconds"])
    cause = quality.cause(measured, stale, late, loop.target, snapshot, now.timestamp())
    quality_fields = {"age_seconds": measured.age_seconds, "unfit": measured.invalid, "idle": measured.idle}
    known = {"late_seconds": late or None, "cause": cause or None, "unit_cost": measured.unit_cost}
    return {**quality_fields, **{name: value for name, value in known.items() if value is not None}}
