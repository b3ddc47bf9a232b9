"""A loop as pages and the API show it: what is in force, each of its parameters, and its decisions."""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from common.parameter import Parameter
from console.display.formats import HumanValues, build_human_values, format_compactly
from controllers import catalog
from controllers.framework import guard
from controllers.framework.law import Law
from workers.control.kinds.registry import find_display
from workers.control.ledger.runs import TickRun
from workers.models import LedgerEntry, Loop, Override
from workers.steering import overrides
from workers.steering.scope import is_advisory_only, list_active_loops
from workers.windows.occurrences import WindowOccurrence

MODES = ("auto", "advise", "hold", "manual")
TABLES = ("rows", "map")  # not for manual changes: they are set where they are measured


@dataclass(frozen=True, kw_only=True)
class DescribedLoop:
    """A loop with what is in force.

    mode and effective parameters include overrides; base_mode and parameters are its own. summary: its law in a
    sentence. window: the active planned window that sets its mode, unless a newer override does. conflict: why
    overrides of parameters and guard are ignored; "": they apply.
    """

    id: int
    name: str
    law: str
    summary: str
    target: Mapping[str, str]
    base_mode: str
    mode: str
    parameters: Mapping[str, Any]
    effective: Mapping[str, Any]
    overrides: Sequence[Override]
    window: WindowOccurrence | None
    conflict: str
    actuator: str | None
    interval_seconds: float
    ticked_at: datetime | None

    @property
    def modes(self) -> Sequence[str]:
        """Return the modes that the loop may be given, in the order of the page."""
        return ("advise", "hold") if is_advisory_only(self.law, self.target) else MODES


@dataclass(frozen=True, kw_only=True)
class ParameterRow:
    """A parameter of a law, or a setting of its guard (named `guard.NAME`), as declared.

    It has its own value, the effective value, and the override in force, if any. label: its name alone.
    """

    name: str
    label: str
    value: object
    effective: object
    default: object
    minimum: float | None
    maximum: float | None
    unit: str
    help: str
    kind: str
    choices: Sequence[str]
    override: Override | None

    @property
    def words(self) -> Sequence[str]:
        """Return the allowed words, if the parameter takes one of several words."""
        return ("true", "false") if self.kind == "flag" else self.choices

    @property
    def shown(self) -> HumanValues:
        """Return its values in the units that are shown."""
        return build_human_values(
            self.unit, self.kind, value=self.value, effective=self.effective, minimum=self.minimum, maximum=self.maximum
        )


def describe_loops(now: datetime) -> list[DescribedLoop]:
    """Return every loop that has a target, by name."""
    loops = list(list_active_loops().order_by("name"))
    held = overrides.group_by_loop(loops, now)
    return [describe(loop, held[loop.pk], now) for loop in loops]


def describe(loop: Loop, in_force: list[Override], now: datetime) -> DescribedLoop:
    """Return the loop with those of its overrides that are in force."""
    law = catalog.get_law(loop.law)
    counted = overrides.select_effective(loop, in_force, now)
    about = (sys.modules[type(law).__module__].__doc__ or "").strip().split("\n")[0]
    return DescribedLoop(
        id=loop.pk,
        name=loop.name,
        law=loop.law,
        summary=about,
        target=loop.target,
        base_mode=loop.mode,
        mode=overrides.get_effective_mode(loop, in_force, now),
        parameters=catalog.read_parameters(law, loop.parameters),
        effective=overrides.get_effective_parameters(law, loop.parameters, counted, now),
        overrides=[row for row in in_force if row.occurrence is None],
        window=next((row.occurrence for row in reversed(in_force) if row.occurrence is not None), None),
        conflict=overrides.compute_effective_values(loop, in_force, now).conflict,
        actuator=law.actuator,
        interval_seconds=loop.interval_seconds,
        ticked_at=loop.ticked_at,
    )


def build_parameter_rows(
    law: Law, own_values: Mapping[str, Any], counted: Collection[Override], now: datetime
) -> list[ParameterRow]:
    """Return a row for each parameter of a law. own_values: those of the loop; counted: the overrides that apply."""
    values = catalog.read_parameters(law, own_values)
    in_force = overrides.get_effective_parameters(law, own_values, counted, now)
    return [
        _build_row(parameter, parameter.name, values, in_force, counted)
        for parameter in law.parameters
        if parameter.kind not in TABLES
    ]


def build_guard_rows(
    law: Law, own_values: Mapping[str, Any], counted: Collection[Override], now: datetime
) -> list[ParameterRow]:
    """Return a row for each setting of the guard likewise."""
    values = guard.read_settings(law, own_values)
    in_force = overrides.get_effective_guard(law, own_values, counted, now)
    return [
        _build_row(setting, f"guard.{setting.name}", values, in_force, counted)
        for setting in guard.list_guard_settings(law)
    ]


def _build_row(
    declared: Parameter, name: str, values: Mapping[str, Any], in_force: Mapping[str, Any], counted: Iterable[Override]
) -> ParameterRow:
    by_name = {override.name: override for override in counted}
    return ParameterRow(
        name=name,
        label=declared.name,
        value=values[declared.name],
        effective=in_force[declared.name],
        default=declared.default,
        minimum=declared.minimum,
        maximum=declared.maximum,
        unit=declared.unit,
        help=declared.help,
        kind=declared.kind,
        choices=declared.choices,
        override=by_name.get(name),
    )


def describe_action(entry: LedgerEntry) -> str:
    """Return a decision's action in a few words: those of its kind if it has some, else its values."""
    return find_display(entry.loop.law, entry.loop.target).brief(entry.action) or format_compactly(entry.action)


@dataclass
class FoldedDecisions:
    """Decisions of one law with the same action and the same effect, newest first."""

    entries: list[LedgerEntry] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.entries)

    @property
    def newest(self) -> LedgerEntry:
        """Return the decision that stands for all."""
        return self.entries[0]

    @property
    def since(self) -> datetime:
        """Return the time of the first decision."""
        return min(entry.at for entry in self.entries)

    @property
    def until(self) -> datetime:
        """Return the time of the last decision."""
        return max(entry.at for entry in self.entries)

    @property
    def loops(self) -> list[Loop]:
        """Return the loops that decided, by name."""
        return sorted({entry.loop.pk: entry.loop for entry in self.entries}.values(), key=lambda loop: loop.name)

    @property
    def has_one_reason(self) -> bool:
        """Return whether all decisions have the reason of the newest."""
        return len({entry.reason for entry in self.entries}) == 1


def fold_decisions(rows: Iterable[LedgerEntry | TickRun]) -> list[LedgerEntry | FoldedDecisions | TickRun]:
    """Fold equal decisions into one line each, and all ticks in between into one last line.

    A decision that no other equals stays as it is. Lines are in the order of their newest decision.
    """
    groups: dict[object, FoldedDecisions] = {}
    between: TickRun | None = None
    for row in rows:
        if isinstance(row, TickRun):
            between = row if between is None else between.merge(row)
        else:
            groups.setdefault(_get_fold_key(row), FoldedDecisions()).entries.append(row)
    lines = [group if group.count > 1 else group.newest for group in groups.values()]
    return [*lines, *([] if between is None else [between])]


def _get_fold_key(entry: LedgerEntry) -> object:
    """Return what equal decisions have in common; a harmful, folded, or idle one is like no other."""
    if entry.action is None or entry.folded_ticks or entry.verdict == LedgerEntry.Verdict.HARMFUL:
        return entry.pk
    return entry.loop.law, describe_action(entry), entry.verdict, entry.mode, entry.limited_by, bool(entry.error)
