"""The replay behind *What if*: the recorded observations of a loop, decided again with other parameters.

Each decision passes the law and the guard as it did then (`controllers.request`), with the changed values in place of
the recorded ones and with the state that the re-run itself has reached. The re-run is **open-loop**: observations do
not respond to its decisions. More workers would have emptied the queue, but the record still shows it full. The result
says how the law would have responded to the same signals and not what would have happened.

Without changes it makes the recorded decisions, entry for entry, which its tests verify.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from common.errors import BadInput
from controllers import catalog, request
from controllers.framework import guard
from controllers.framework.guard import GuardedDecision
from controllers.framework.law import Law
from workers.control import tick
from workers.control.kinds.registry import find_display
from workers.control.ledger import folds, ledger
from workers.control.parts.kind import Display
from workers.models import LedgerEntry, Loop

FIRST_HOURS, MAXIMUM_HOURS = 2.0, 24.0
BUDGET_SECONDS = 10.0
FIRST_DIFFERENCES = 20


@dataclass(frozen=True)
class RerunStep:
    """One decision: the size of the recorded action and of the new one (0: none).

    For a value that stays in force, it has the recorded value and the new one instead.
    """

    at: datetime
    entry: int
    did: float
    would: float
    did_reason: str
    would_reason: str
    differs: bool  # the actions and not only their sizes


@dataclass(frozen=True)
class Side:
    """Summary of one side.

    It has the decisions with an action, the sum of their sizes, and Σ|change| from decision to decision.
    """

    actions: int = 0
    total: float = 0.0
    movement: float = 0.0


@dataclass(frozen=True)
class Rerun:
    """A whole re-run.

    `skipped`: entries that are no longer valid for the law. `left`: entries not reached in time.
    """

    steps: tuple[RerunStep, ...] = ()
    skipped: int = 0
    left: int = 0
    first_error: str = ""
    did: Side = field(default_factory=Side)
    would: Side = field(default_factory=Side)

    @property
    def differing(self) -> list[RerunStep]:
        return [step for step in self.steps if step.differs]

    def to_json(self) -> dict[str, Any]:
        """Return a plain object for the API."""
        return {
            "open_loop": "The recorded observations do not respond to the new decisions.",
            "decisions": len(self.steps),
            "differing": len(self.differing),
            "skipped": self.skipped,
            "left": self.left,
            "first_error": self.first_error,
            "did": vars(self.did),
            "would": vars(self.would),
            "series": {
                "at": [step.at.timestamp() for step in self.steps],
                "did": [step.did for step in self.steps],
                "would": [step.would for step in self.steps],
            },
            "first_differences": [
                {**vars(step), "at": step.at.timestamp()} for step in self.differing[:FIRST_DIFFERENCES]
            ],
        }


def check_hours(hours: float) -> float:
    """Return hours back from now, in which to decide again. Raises `BadInput`."""
    if not 0.0 < hours <= MAXIMUM_HOURS:
        raise BadInput("hours", f"must be more than 0 and at most {MAXIMUM_HOURS:g}, not {hours:g}.")
    return hours


def rerun_last_hours(loop: Loop, changed: Mapping[str, Any], hours: float, now: datetime) -> "Rerun":
    """Decide the last hours again. Raises `BadInput` that names the field."""
    return rerun(loop, changed, now - timedelta(hours=check_hours(hours)), now, time.monotonic)


def rerun(
    loop: Loop,
    changed: Mapping[str, Any],
    since: datetime,
    until: datetime,
    monotonic: Callable[[], float],
    budget_seconds: float = BUDGET_SECONDS,
) -> Rerun:
    """Decide again on all entries of a loop in a time range with changed values and return the re-run.

    changed: {parameter or guard.NAME: value}. Raises `BadInput` naming the field of a value that is invalid by itself
    or with the loop's own values.
    """
    law = catalog.get_law(loop.law)
    checked = check(loop, law, changed)
    if not since < until:
        raise BadInput("hours", "must be a time range that starts before it ends")
    entries, end = loop.entries.all(), monotonic() + budget_seconds
    count = folds.count(entries, since, until)
    run = _Run(law, checked, find_display(loop.law, loop.target))
    for entry in folds.iterate_ticks(entries, since, until):
        if monotonic() >= end:
            break
        run.take(entry)
    reached = len(run.steps) + run.skipped
    return Rerun(
        tuple(run.steps),
        run.skipped,
        count - reached,
        run.first_error,
        _build_side(run.did, [step.did for step in run.steps]),
        _build_side(run.would, [step.would for step in run.steps]),
    )


def check(loop: Loop, law: Law, changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values after checking them and their combination with the loop's. Raises `BadInput`."""
    checked = {}
    for name, value in changed.items():
        if name == law.actuator:
            raise BadInput(
                "name", f"{name} is an output of the law and can't be changed here; change the law's parameters instead"
            )
        try:
            checked[name] = catalog.get_parameter(law, name).check(value, "value")
        except BadInput as error:
            raise BadInput("name" if error.field == "name" else name, error.message) from None
    own, of_guard = _split(checked)
    catalog.read_parameters(law, {**loop.parameters, **own})
    guard.read_settings(law, {**loop.guard, **of_guard})
    return checked


def _split(changed: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the changes into the law's values and the guard's."""
    own = {name: value for name, value in changed.items() if not name.startswith("guard.")}
    of_guard = {name.removeprefix("guard."): value for name, value in changed.items() if name not in own}
    return own, of_guard


def _build_side(did: "_Line", values: Iterable[float]) -> Side:
    moved = sum(abs(after - before) for before, after in itertools.pairwise(values))
    return Side(did.actions, did.total, moved)


def _describe_limit(limited_by: str | None, terms: Mapping[str, Any]) -> Mapping[str, Any]:
    """Describe the limit; empty during a cool-down, where the terms describe the proposal."""
    return {} if limited_by == guard.COOL_DOWN else terms


class _Line:
    """A sequence of decisions: the size of each and, for a value that stays in force, that value."""

    def __init__(self, law: Law, display: Display) -> None:
        self._law, self._display = law, display
        self.actions, self.total, self._stays = 0, 0.0, 0.0

    def take(self, action: Mapping[str, Any] | None, value: float | None, said: Mapping[str, Any]) -> float:
        """Add a decision. value: of a law with one number, after the guard; said: terms of other laws."""
        size, lasts = self._display.compute_size(action), bool(self._display.lasting)
        self.total += size
        self.actions += action is not None if lasts else size != 0
        if not lasts:
            return size
        applied = said.get(self._display.lasting) if self._law.actuator is None else value
        self._stays = self._stays if applied is None else float(applied)
        return self._stays


class _Run:
    """A re-run in progress, with the states of law and guard that it has reached."""

    def __init__(self, law: Law, changed: Mapping[str, Any], display: Display) -> None:
        self.law = law
        self.did, self.would = _Line(law, display), _Line(law, display)
        self.own, self.of_guard = _split(changed)
        self.steps: list[RerunStep] = []
        self.skipped = 0
        self.first_error = ""
        self._state: dict[str, Any] | None = None
        self._mode = ""

    def take(self, entry: LedgerEntry) -> None:
        """Decide on one entry; an invalid one is skipped, and the next uses its recorded state."""
        try:
            guarded = self._decide_entry(entry)
        except BadInput as error:
            self.skipped, self._state = self.skipped + 1, None
            self.first_error = self.first_error or f"entry {entry.pk}: {error}"
            return
        before = entry.state_before or {}
        if entry.mode != Loop.Mode.HOLD:
            self._state = {"law": guarded.state, "guard": guarded.guard_state}
        elif self._state is None:
            self._state = {"law": before.get("law"), "guard": before.get("guard")}
        self._mode = entry.mode
        decision = guarded.decision
        sizes = (
            self.did.take(entry.action, entry.guarded, _describe_limit(entry.limited_by, entry.terms)),
            self.would.take(decision.action, guarded.value, _describe_limit(decision.limited_by, decision.terms)),
        )
        differs = entry.action != (None if decision.action is None else dict(decision.action))
        self.steps.append(RerunStep(entry.at, entry.pk, *sizes, entry.reason, decision.reason, differs))

    def _decide_entry(self, entry: LedgerEntry) -> GuardedDecision:
        """Decide on an entry with the memory that a tick would have.

        In advise nothing was applied, and failed actions are undone.
        """
        document = ledger.export(entry)
        document["parameters"] = {**document["parameters"], **self.own}
        document["guard"]["settings"] = {**(document["guard"]["settings"] or {}), **self.of_guard}
        if self._state is not None:
            states = self._state["law"], self._state["guard"]
            if tick.resumes(self._mode, entry.mode):
                states = tick.merge_memory(self.law, *states)
            document["state"], document["guard"]["state"] = states
        guarded = request.decide_once(self.law, document, applies=entry.mode != Loop.Mode.ADVISE)
        if entry.applied or not entry.error or entry.mode not in Loop.ACTING:
            return guarded
        undone = request.decide_once(self.law, document, applies=False)
        return replace(guarded, state=undone.state)
