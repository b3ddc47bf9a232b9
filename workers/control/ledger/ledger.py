"""The ledger: one entry per tick of a loop, whether it acted or not, and later the effect of its action.

An entry is written as an intent **before** the plant is changed. A tick that dies in between leaves an *open* entry: an
action that should have been applied and may or may not have been. The next tick finds it and applies it again under the
same worker ids, which start at most once (`workers.plants.plant`), so an action is neither lost nor applied twice.

The data that a replay needs besides the law's own columns is stored with them: `parameters["guard"]` (settings) and, in
manual, `parameters["manual"]`; `state_before` = {"law", "guard", "sensor"}; the observation's `age_seconds`, `invalid`,
and `idle`.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import compress
from operator import attrgetter
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F, OuterRef, QuerySet, Subquery

from common.checks import make_storable
from common.errors import BadInput
from controllers import catalog, request
from controllers.framework import code
from controllers.framework.decision import Decision
from controllers.framework.guard import GuardedDecision
from queues.nodes.node_state import TOOBUSY
from workers.control.kinds.registry import get_kind
from workers.coordination.bulk_writes import insert_rows, prepare_values, update_rows
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.steering.kept import exclude_kept

logger = logging.getLogger(__name__)
LATE_SECONDS = 60.0  # afterwards, measurements say nothing about an effect
Verdict = LedgerEntry.Verdict
APPLYING_MODES = (Loop.Mode.AUTO, Loop.Mode.MANUAL)
# An action with at least this share of the expected effect is effective; with as much in the other direction
# it is harmful.
EFFECTIVE_SHARE = 0.5
MEASURED_KEYS = ("age_seconds", "unfit", "idle")
# Properties of the tick rather than of the observation (`workers.control.tick`).
TICK_KEYS = ("late_seconds", "cause", "unit_cost")
# What a tick changes in its loop.
REMEMBERED = ("fence", "state", "ticked_at", "decided_at", "at_rest")
JUDGED_BY = ("pk", "at", "expected", "outcome", "loop__law", "loop__target")  # fields of `SettledAction`
# What judging changes in an entry.
JUDGED = ("outcome", "verdict", "judge_at")
ABOUT_KEYS = (*MEASURED_KEYS, *TICK_KEYS)


def build_entry(
    loop: Loop,
    *,
    at: datetime,
    fence: int,
    mode: str,
    parameters: Mapping[str, Any],
    state_before: object,
    observation: Mapping[str, Any],
    guarded: GuardedDecision,
    reason: str,
    baseline: Mapping[str, Any] | None,
) -> LedgerEntry:
    """Build an entry that is not stored yet. The effect of an applied action is later compared with this baseline."""
    decision = guarded.decision
    expected = decision.expected.to_json() if decision.expected is not None else None
    entry = LedgerEntry(
        loop=loop,
        at=at,
        fence=fence,
        mode=mode,
        parameters=dict(parameters),
        state_before=state_before,
        observation=dict(observation),
        action=None if decision.action is None else dict(decision.action),
        raw=decision.raw,
        guarded=guarded.value,
        reason=make_storable(reason),  # the text may quote another plant
        terms=dict(decision.terms),
        limited_by=decision.limited_by,
        expected=expected,
        code=code.compute_code_version(),
    )
    acts = is_applied_by_tick(entry)
    entry.outcome = {"before": dict(baseline)} if acts and baseline is not None else None
    if acts and decision.expected is not None:
        entry.verdict = Verdict.CHECKING
        entry.judge_at = at + timedelta(seconds=decision.expected.within_seconds)
    else:
        entry.verdict = Verdict.NO_ACTION
    return entry


def is_applied_by_tick(entry: LedgerEntry) -> bool:
    """Return whether the tick that wrote the entry applies its action."""
    return entry.action is not None and entry.mode in APPLYING_MODES


@dataclass(frozen=True)
class EvaluatedTick:
    """The decision of one loop's tick.

    loop: as it was read under the lease; before: the number that it had then. entry: not stored yet. memory: what the
    loop remembers from now on. at_rest: whether the next ticks may skip writing while there is nothing to do.
    """

    loop: Loop
    before: int
    entry: LedgerEntry
    memory: dict[str, Any]
    at_rest: bool = False

    def is_next(self, passed: int | None) -> bool:
        """Return whether no process has ticked the loop since it was read and its number is the greatest."""
        return passed == self.before < self.entry.fence

    def remember(self, now: datetime) -> None:
        """Give the loop what it remembers from now on."""
        loop = self.loop
        loop.fence, loop.state, loop.at_rest = self.entry.fence, self.memory, self.at_rest
        loop.ticked_at = loop.decided_at = now


def record(ticks: Sequence[EvaluatedTick], now: datetime) -> list[EvaluatedTick]:
    """Write entries and states in one transaction and return the ticks that were written.

    A tick that lost its lease, or read before another tick wrote, leaves no trace.
    """
    if not ticks:
        return []
    for tick in ticks:
        tick.remember(now)
    # The values are prepared before the transaction, because on SQLite no other process writes during it.
    loop_values = prepare_values(Loop, [tick.loop for tick in ticks], REMEMBERED)
    entry_values = prepare_values(LedgerEntry, [tick.entry for tick in ticks])
    with transaction.atomic():
        rows = Loop.objects.select_for_update().filter(pk__in=[tick.loop.pk for tick in ticks])
        passed = dict(rows.order_by("pk").values_list("pk", "fence"))
        is_next = [tick.is_next(passed.get(tick.loop.pk)) for tick in ticks]
        ours = list(compress(ticks, is_next))
        update_rows(Loop, REMEMBERED, list(compress(loop_values, is_next)))
        insert_rows([tick.entry for tick in ours], list(compress(entry_values, is_next)))
    for tick, is_recorded in zip(ticks, is_next, strict=True):
        if not is_recorded:
            logger.warning("A later tick of %s has run. This tick is not recorded.", tick.loop.name)
    return ours


def confirm(*entries: LedgerEntry) -> None:
    """Record that the plant accepted these actions.

    Where a later tick has given an action up in the meantime, the entry says that, too.
    """
    rows = LedgerEntry.objects.filter(pk__in=[entry.pk for entry in entries])
    for entry in entries:
        entry.applied = True
    if not entries or rows.filter(error="").update(applied=True) == len(entries):
        return
    given_up = set(rows.exclude(error="").values_list("pk", flat=True))
    for entry in entries:
        if entry.pk in given_up:
            entry.error = "Applied late, after a later tick had marked the action as abandoned."
            LedgerEntry.objects.filter(pk=entry.pk).update(applied=True, error=entry.error)


def find_current_ids(entries: Iterable[LedgerEntry]) -> set[int]:
    """Return the ids of the entries after which no later tick ran; a process that was paused may find one."""
    rows = LedgerEntry.objects.filter(pk__in=[entry.pk for entry in entries], error="")
    return set(rows.filter(loop__fence=F("fence")).values_list("pk", flat=True))


def fail(entry: LedgerEntry, error: str) -> None:
    """Record why the action was not applied or why its outcome is unknown."""
    entry.error, entry.verdict, entry.judge_at = make_storable(error), Verdict.NO_ACTION, None
    LedgerEntry.objects.filter(pk=entry.pk).update(error=entry.error, verdict=entry.verdict, judge_at=None)


def find_last_entry(loop: Loop) -> LedgerEntry | None:
    """Return the last entry of the loop that decided.

    It is chosen by id: after a clock was set back, the entry with the latest time may be an older one.
    """
    if loop.decided_at is None:
        return None
    return loop.entries.filter(at=loop.decided_at).order_by("-pk").first()


def select_last_entry_ids() -> QuerySet[LedgerEntry, Any]:
    """Return a subquery of loops with the id of `last_entry`, which an index finds."""
    of_loop = LedgerEntry.objects.filter(loop=OuterRef("pk"), at=OuterRef("decided_at"))
    return of_loop.order_by("-pk").values("pk")[:1]


def open_entries(loops: Iterable[int]) -> dict[int, LedgerEntry]:
    """Return {loop id: last entry} where the last entry is an open action.

    An open action is neither confirmed nor failed, because its tick died.
    """
    last = Loop.objects.filter(pk__in=loops).annotate(last=Subquery(select_last_entry_ids())).values("last")
    rows = LedgerEntry.objects.filter(pk__in=last, mode__in=APPLYING_MODES, applied=False, error="")
    return {entry.loop_id: entry for entry in rows.filter(action__isnull=False)}


class SettledAction(NamedTuple):
    """The values of an entry by which the effect of its action is judged."""

    pk: int
    at: datetime
    expected: Mapping[str, Any]
    outcome: Mapping[str, Any] | None
    law: str
    target: Mapping[str, Any]


class _JudgedAction(NamedTuple):
    """The values that judging writes to an entry."""

    id: int
    outcome: dict[str, Any]
    verdict: str
    judge_at: None = None


def judge_due(now: datetime, snapshot: Snapshot, part: int = 0, parts: int = 1) -> list[int]:
    """Compare expected with actual effects of each entry whose settling time is over, and return the ids of those.

    part, parts: the number of the part of the entries to judge, and the number of parts. Other processes judge the
    other parts.

    effective: at least half of the expected effect occurred. harmful: as much occurred in the other direction, or the
    node has become TOOBUSY. Otherwise ineffective. An entry is also ineffective, with an outcome that says why, when
    its target has vanished, its counters were reset, or it was not judged in time (LATE_SECONDS). An entry that cannot
    be judged stops no other.
    """
    judged: list[_JudgedAction] = []
    for action in _load_settled_actions(now, part, parts):
        try:
            outcome, verdict = judge_action(action, now, snapshot)
        except Exception as error:
            logger.exception("Failed to evaluate the effect of entry %s.", action.pk)
            why = make_storable(f"the effect cannot be evaluated: {error}")
            outcome, verdict = {**(action.outcome or {}), "why": why}, Verdict.INEFFECTIVE
        judged.append(_JudgedAction(action.pk, outcome, verdict))
    values = prepare_values(LedgerEntry, judged, JUDGED)
    if judged:
        with transaction.atomic():
            # Of two processes that judge at once, the first wins.
            update_rows(LedgerEntry, JUDGED, values, {"verdict": Verdict.CHECKING})
    return [action.id for action in judged]


def _load_settled_actions(now: datetime, part: int, parts: int) -> list[SettledAction]:
    """Return the actions of one part whose settling time is over.

    Model instances are not built, because each tick of many loops reads thousands of actions.
    """
    due = LedgerEntry.objects.filter(judge_at__lte=now)
    if parts > 1:
        due = due.annotate(part=F("pk") % parts).filter(part=part)
    # They are sorted here: to read them in the order of their ids, SQLite would scan the table.
    return sorted((SettledAction(*row) for row in due.values_list(*JUDGED_BY)), key=attrgetter("pk"))


def judge_action(action: SettledAction, now: datetime, snapshot: Snapshot) -> tuple[dict[str, Any], str]:
    """Return the outcome of an action, and its verdict."""
    before = (action.outcome or {}).get("before") or {}
    kind, expected = get_kind(action.law), action.expected
    after = kind.readings(action.target, snapshot)
    after_seconds = (now - action.at).total_seconds()
    outcome = {"before": before, "after": after, "after_seconds": after_seconds}
    metric = expected["metric"]
    if after_seconds > expected["within_seconds"] + LATE_SECONDS:
        return {**outcome, "why": "the effect was not measured in time"}, Verdict.INEFFECTIVE
    if after is None or metric not in before or after.get(metric) is None or before[metric] is None:
        return {**outcome, "why": f"{metric} of the target is no longer measured"}, Verdict.INEFFECTIVE
    change = after[metric] - expected.get("before", before[metric])
    gained = change if expected["direction"] == "up" else -change
    outcome |= {"change": change, "gained": gained}
    if metric in kind.cumulative and change < 0:
        return {**outcome, "why": f"{metric} was reset during the measurement"}, Verdict.INEFFECTIVE
    if after["node_state"] == TOOBUSY and before.get("node_state") != TOOBUSY:
        return {**outcome, "why": "the node has since become TOOBUSY"}, Verdict.HARMFUL
    enough = expected["amount"] * EFFECTIVE_SHARE
    if gained >= enough:
        return outcome, Verdict.EFFECTIVE
    return outcome, Verdict.HARMFUL if gained <= -enough else Verdict.INEFFECTIVE


def export(entry: LedgerEntry) -> dict[str, Any]:
    """Return the entry in the format of `manage.py decide`, which gives the same decision."""
    law = catalog.get_law(entry.loop.law)
    state = entry.state_before or {}
    observed = entry.observation or {}
    document = {
        "law": law.name,
        "parameters": {key: value for key, value in entry.parameters.items() if key not in ("guard", "manual")},
        "state": state.get("law"),
        "observation": {key: value for key, value in observed.items() if key not in (*MEASURED_KEYS, *TICK_KEYS)},
        "guard": {
            "settings": entry.parameters.get("guard"),
            "state": state.get("guard"),
            "now_seconds": entry.at.timestamp(),
            **{key: observed.get(key) for key in MEASURED_KEYS},
            **({"unit_cost": observed["unit_cost"]} if "unit_cost" in observed else {}),
        },
    }
    manual = entry.parameters.get("manual")
    return document if manual is None else {**document, "manual": manual}


@dataclass(frozen=True)
class Replay:
    """A decision computed again from its record.

    `differences`: {field: (recorded, replayed)}; empty means equal. `code`: the code version of the replay;
    `recorded_code`: that of the record ("" for records from before code versions were stored). `error`: why
    the decision could not be replayed, else "".
    """

    decision: Decision | None
    differences: Mapping[str, tuple[Any, Any]]
    recorded_code: str
    code: str
    error: str = ""

    @property
    def same(self) -> bool | None:
        """Return whether the decisions are equal; None when it could not be replayed."""
        return None if self.decision is None else not self.differences

    @property
    def same_code(self) -> bool:
        """Return whether the recorded code is the current code, so that a difference is a defect."""
        return self.recorded_code == self.code

    def to_json(self) -> dict[str, Any]:
        """Return a plain object for the API."""
        return {
            "same": self.same,
            "differences": {
                name: {"recorded": recorded, "replayed": replayed}
                for name, (recorded, replayed) in self.differences.items()
            },
            "decision": None if self.decision is None else self.decision.to_json(),
            "code": self.code,
            "recorded_code": self.recorded_code,
            "error": self.error,
        }


def replay(entry: LedgerEntry) -> Replay:
    """Compute the decision again from its record. A record that is no longer valid for its law gives an error."""
    try:
        decision = request.decide_once(catalog.get_law(entry.loop.law), export(entry)).decision
    except BadInput as error:
        return Replay(None, {}, entry.code, code.compute_code_version(), str(error))
    recorded = {name: getattr(entry, name) for name in ("action", "raw", "terms", "limited_by", "expected")}
    replayed = decision.to_json()
    differences = {name: (was, replayed[name]) for name, was in recorded.items() if was != replayed[name]}
    return Replay(decision, differences, entry.code, code.compute_code_version())


def select_due_entries(before: datetime) -> QuerySet[LedgerEntry]:
    """Return older entries, except those in a kept range, with an open check, or with a plan."""
    due = LedgerEntry.objects.filter(at__lt=before, plan__isnull=True).exclude(verdict=LedgerEntry.Verdict.CHECKING)
    return exclude_kept(due, "at")
