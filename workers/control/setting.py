"""The settings in force for a loop's tick: mode, parameters, and guard, with overrides applied."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from controllers import catalog
from controllers.framework.reason import ADVICE_ONLY, format_not_applied
from workers.documents.snapshot import Snapshot
from workers.models import Loop, Override
from workers.steering import overrides, stopped

Mode = Loop.Mode


@dataclass(frozen=True)
class TickSetting:
    """Settings of a tick: mode, parameters, guard, and in manual the person's value."""

    mode: str
    parameters: dict[str, Any]
    guard: dict[str, Any]
    manual: dict[str, Any] | None
    conflict: str = ""  # why the overrides of parameters and guard are ignored
    stopped: str = ""  # the pauses and drains of what the loop controls

    def build_record(self) -> dict[str, Any]:
        """Build the record that the ledger stores."""
        manual = {} if self.manual is None else {"manual": self.manual}
        return {**self.parameters, "guard": self.guard, **manual}

    def format_reason(self, decided: str, in_force: list[Override], now: datetime) -> str:
        """Return the decision's reason, and why the decision is not applied."""
        if self.conflict:
            decided = f"{decided} The overrides contradict each other and are ignored: {self.conflict}."
        if self.mode == Mode.ADVISE:
            return format_not_applied(decided, ADVICE_ONLY)
        if self.stopped:
            return format_not_applied(decided, f"on hold, {self.stopped}")
        if self.mode == Mode.HOLD:
            return format_not_applied(decided, f"on hold{_describe_revert(in_force, now)}")
        return decided


def resolve_setting(loop: Loop, in_force: list[Override], snapshot: Snapshot, now: datetime) -> TickSetting:
    """Return the settings of a loop with these overrides.

    The mode is hold while its target is paused or drained.
    """
    setting = build_effective_setting(loop, in_force, now)
    why = stopped.explain_hold(loop.target, snapshot)
    return replace(setting, mode=Mode.HOLD, manual=None, stopped=why) if why else setting


def build_effective_setting(loop: Loop, in_force: list[Override], now: datetime) -> TickSetting:
    """Return the loop's mode, parameters, and guard with the overrides in force applied.

    Overrides that were consistent may conflict after one of them ends. The loop's own values then apply, and `conflict`
    says why, so that the loop does not run with values that its law rejects.
    """
    law, conflict = catalog.get_law(loop.law), overrides.explain_conflict(loop, in_force, now)
    mode, manual = overrides.get_effective_mode(loop, in_force, now), None
    if mode == Mode.MANUAL:
        value = overrides.find_effective_value(str(law.actuator), in_force, now)
        manual = {} if value is None else {str(law.actuator): value}
    applied = [] if conflict else in_force
    return TickSetting(
        mode=mode,
        parameters=overrides.get_effective_parameters(law, loop.parameters, applied, now),
        guard=overrides.get_effective_guard(law, loop.guard, applied, now),
        manual=manual,
        conflict=conflict,
    )


def _describe_revert(in_force: list[Override], now: datetime) -> str:
    """Describe when the mode reverts; empty where it does not."""
    holding = [override for override in in_force if override.name == "mode" and overrides.holds(override, now)]
    if not holding or holding[-1].expires_at is None:
        return ""
    return f" until {holding[-1].expires_at:%Y-%m-%d %H:%M:%S} UTC"
