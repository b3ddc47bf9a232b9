"""Gathers the evidence of one instant: reads the snapshot, the ledger, and what fails."""

import math
import os
import sys
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import redis
from django.db.models import Max, Q, QuerySet
from django.utils import timezone

from common.errors import BadInput
from common.stored_document import decode_readable_document
from controllers import catalog
from controllers.framework import guard
from queues import keys
from queues.control.replies import expect_bytes
from queues.publishing.producers import LEFT_SECONDS
from workers.alerts.conditions.condition import CONDITIONS
from workers.alerts.conditions.evidence import (
    STALE,
    AuditFacts,
    Evidence,
    FailingReceiver,
    FailingTask,
    FailureRecord,
    LedgerTick,
    LoopFacts,
    NewFailures,
)
from workers.alerts.lifecycle.models import AlertRule, Message
from workers.coordination.plant_clock import Freshness
from workers.documents.alerts import AuditVerdict
from workers.documents.queues import ReportedProducer
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop, Override, Plan, Run
from workers.steering import overrides
from workers.steering.scope import list_active_loops
from workers.task_history.failures import list_new_groups, list_recent_groups

# The maximum age of a snapshot that still describes the plant.
FRESH_SECONDS = 5.0
# A snapshot older than this when the watch starts is from another run of the plant.
SAME_RUN_SECONDS = 60.0
MAX_WINDOW_SECONDS, MIN_WINDOW_SECONDS = 7_200.0, 600.0
# An entry gets its id before its transaction ends, so one with a lower id may become visible later than
# another, by this much at most.
LATE_SECONDS = 10.0
# A producer would still publish to the queues that it published to this shortly before it fell silent.
SAME_SECONDS = 300.0


class Gatherer:
    """Gathers evidence repeatedly: keeps what was read of the ledger, and reads only what is new."""

    def __init__(self, control: redis.Redis) -> None:
        self._control = control
        self._freshness = Freshness()
        self._ticks: dict[int, deque[LedgerTick]] = {}
        self._blind_since: dict[int, float] = {}
        self._window_seconds = 0.0
        self._settled = 0  # No entry with this id, or a lower one, can still appear.
        self._made: dict[int, float] = {}  # entries with higher ids that were read: monotonic times
        self._began_seconds: float | None = None
        self._checking: set[int] = set()

    def gather(self, now: float, monotonic_seconds: float) -> Evidence:
        """Return the evidence of this instant. Raises what the database and the control server raise."""
        # A snapshot that can't be read counts as none: then the observer is silent, and an alert says so.
        snapshot = decode_readable_document(Snapshot, self._control.get(keys.SNAPSHOT))
        if self._began_seconds is None:
            observed = snapshot is not None and abs(now - (snapshot.at or 0.0)) <= SAME_RUN_SECONDS
            self._began_seconds = -math.inf if observed else monotonic_seconds
        silent = self._compute_silent_seconds(snapshot, now, monotonic_seconds)
        fresh = snapshot if silent is not None and silent <= FRESH_SECONDS else None
        self._read_ledger(now, monotonic_seconds)
        loops = list_loop_facts(now, self._ticks, self._blind_since)
        self._forget_others({loop.id for loop in loops})
        since = datetime.fromtimestamp(now - MAX_WINDOW_SECONDS, UTC)
        published = self._load_publish_ages(now, monotonic_seconds)
        silent_for = {name: min(ages.values()) for name, ages in published.items()}
        return Evidence(
            now=now,
            snapshot=fresh,
            silent_seconds=silent,
            started_seconds=monotonic_seconds - self._began_seconds,
            loops=loops,
            producers=silent_for,
            published_to={
                name: sorted(queue for queue, age in ages.items() if age <= silent_for[name] + SAME_SECONDS)
                for name, ages in published.items()
            },
            unheard=self._compute_node_silence(fresh, monotonic_seconds),
            throttled=self._list_throttled(snapshot),
            plans=list_failed_plans(since),
            runs=list_failed_runs(since),
            new_failures=[
                NewFailures(group.plant, group.name, group.error, group.first_seen, group.count)
                for group in list_new_groups(now - MAX_WINDOW_SECONDS)
            ],
            failing_tasks=[
                FailingTask(group.plant, group.name, group.error, group.last_seen)
                for group in list_recent_groups(now - MAX_WINDOW_SECONDS)
            ],
            failing=list_failing_receivers(since),
            audit=self._read_audit_facts(now, monotonic_seconds),
            load_per_core=os.getloadavg()[0] / (os.cpu_count() or 1),
        )

    def _read_audit_facts(self, now: float, monotonic_seconds: float) -> AuditFacts:
        verdict = decode_readable_document(AuditVerdict, self._control.get(keys.AUDIT_VERDICT))
        if verdict is None:
            return AuditFacts(self._freshness.compute_age_seconds("audit", "none yet", monotonic_seconds))
        age = self._freshness.compute_age_seconds("audit", verdict.at, monotonic_seconds, now - verdict.at)
        return AuditFacts(age, verdict.findings_count, [finding.text for finding in verdict.findings])

    def _compute_silent_seconds(self, snapshot: Snapshot | None, now: float, monotonic_seconds: float) -> float | None:
        if snapshot is None or snapshot.at is None:
            return self._freshness.compute_age_seconds("snapshot", "none yet", monotonic_seconds)
        mark, lag = (snapshot.seq, snapshot.at), now - snapshot.at
        return self._freshness.compute_age_seconds("snapshot", mark, monotonic_seconds, lag)

    def _read_ledger(self, now: float, monotonic_seconds: float) -> None:
        """Read new entries, and verdicts that have arrived since, as far back as any rule looks.

        The loops of a busy plant write thousands of entries an hour.
        """
        # Conditions that count a loop's ticks look as far back as their rules say.
        counting = [name for name, condition in CONDITIONS.items() if condition.counts and condition.source == "ledger"]
        rules = AlertRule.objects.filter(enabled=True, condition__in=counting)
        longest = rules.aggregate(longest=Max("window_seconds"))["longest"] or 0.0
        window_seconds = min(max(float(longest), MIN_WINDOW_SECONDS), MAX_WINDOW_SECONDS)
        if window_seconds > self._window_seconds:
            self._ticks, self._made, self._settled = {}, {}, 0  # Entries that were forgotten are needed now.
        self._window_seconds = window_seconds
        since = datetime.fromtimestamp(now - window_seconds, UTC)
        for loop, tick in iterate_ticks(LedgerEntry.objects.filter(pk__gt=self._settled, at__gte=since)):
            if tick.id in self._made:
                continue
            self._ticks.setdefault(loop, deque()).append(tick)
            self._made[tick.id] = monotonic_seconds - max(0.0, now - tick.at)
            if tick.limited_by != STALE:
                self._blind_since.pop(loop, None)
            else:
                self._blind_since.setdefault(loop, tick.at)
            if tick.verdict == LedgerEntry.Verdict.CHECKING:
                self._checking.add(tick.id)
        self._settle(monotonic_seconds - LATE_SECONDS)
        self._read_verdicts()
        for ticks in self._ticks.values():
            # Later than now: written before a clock was set back.
            while ticks and not now - window_seconds <= ticks[0].at <= now + LATE_SECONDS:
                self._checking.discard(ticks.popleft().id)

    def _forget_others(self, loops: Collection[int]) -> None:
        """Forget the entries of loops whose targets are gone.

        A new loop starts with its target, and has not been blind or without an effect in between.
        """
        for loop in self._ticks.keys() - loops:
            self._checking -= {tick.id for tick in self._ticks.pop(loop)}
            self._blind_since.pop(loop, None)

    def _settle(self, until_seconds: float) -> None:
        """Mark as complete what is this old: no entry appears any more before the newest one of that age."""
        old = [entry for entry, made_seconds in self._made.items() if made_seconds <= until_seconds]
        self._settled = max([self._settled, *old])
        self._made = {entry: made for entry, made in self._made.items() if entry > self._settled}

    def _read_verdicts(self) -> None:
        judged = LedgerEntry.objects.filter(pk__in=self._checking).exclude(verdict="checking")
        verdicts = dict(judged.values_list("pk", "verdict")) if self._checking else {}
        self._checking -= verdicts.keys()
        for ticks in self._ticks.values() if verdicts else ():
            for at, tick in enumerate(ticks):
                if tick.id in verdicts:
                    ticks[at] = replace(tick, verdict=verdicts[tick.id])

    def _load_publish_ages(self, now: float, monotonic_seconds: float) -> dict[str, dict[str, float]]:
        """Return producer → queue → seconds since it last published there."""
        ages: dict[str, dict[str, float]] = {}
        rows = expect_bytes(self._control).hgetall(keys.PRODUCERS)
        self._freshness.forget_others("producer", (name.decode() for name in rows))
        for name, stored in rows.items():
            key = name.decode()
            report = decode_readable_document(ReportedProducer, stored)
            if report is None:
                continue
            lag = now - report.at
            age = self._freshness.compute_age_seconds(f"producer/{key}", report.at, monotonic_seconds, lag)
            producer, _, queue = key.rpartition("|")
            if age < LEFT_SECONDS:
                ages.setdefault(producer, {})[queue] = age
        return ages

    def _compute_node_silence(self, snapshot: Snapshot | None, monotonic_seconds: float) -> dict[str, float]:
        """Return for how long silent nodes are known to be silent.

        An observer that has just started doesn't know the age of a silent node: it counts from here on.
        """
        ages = {}
        for name, node in (snapshot.nodes if snapshot else {}).items():
            heard = node.age_seconds is not None
            age = self._freshness.compute_age_seconds(f"node/{name}", heard, monotonic_seconds)
            if not heard:
                ages[name] = age
        return ages

    def _list_throttled(self, snapshot: Snapshot | None) -> list[str]:
        queues = sorted(snapshot.queues if snapshot else ())
        if not queues:
            return []
        with self._control.pipeline(transaction=False) as pipe:
            for queue in queues:
                pipe.exists(keys.THROTTLE.build(queue))
            answers = pipe.execute()
        return [queue for queue, there in zip(queues, answers, strict=True) if there]


def iterate_ticks(entries: QuerySet[LedgerEntry]) -> Iterable[tuple[int, LedgerTick]]:
    """Return (loop id, tick) of ledger entries, in their order."""
    # The database says whether it acted: an action may contain a thousand moves, and none is read.
    rows = entries.order_by("pk").annotate(acts=Q(action__isnull=False))
    columns = ("pk", "loop_id", "at", "acts", "guarded", "limited_by", "verdict")
    for key, loop, at, acts, value, limited_by, verdict in rows.values_list(*columns).iterator():
        # Thousands are kept for hours, and have few different words.
        limit = limited_by and sys.intern(limited_by)
        yield loop, LedgerTick(key, at.timestamp(), bool(acts), value, limit, sys.intern(verdict))


def list_loop_facts(
    now: float, ticks: Mapping[int, Sequence[LedgerTick]], blind_since: Mapping[int, float] = MappingProxyType({})
) -> list[LoopFacts]:
    loops = list(list_active_loops())
    held = overrides.group_by_loop(loops, datetime.fromtimestamp(now, UTC))
    modes = {number: row for number, rows in held.items() for row in rows if row.name == "mode"}
    causes = _load_invalid_observations(ticks)
    return [
        replace(
            build_loop_facts(loop, ticks.get(loop.pk, ()), modes.get(loop.pk), causes.get(loop.pk, {})),
            blind_since=blind_since.get(loop.pk),
        )
        for loop in loops
    ]


def _load_invalid_observations(ticks: Mapping[int, Sequence[LedgerTick]]) -> dict[int, dict[str, Any]]:
    """Return loop → its newest tick's observation, if that is invalid; only these observations are read."""
    newest = {rows[-1].id: loop for loop, rows in ticks.items() if rows and rows[-1].limited_by == STALE}
    if not newest:
        return {}
    observations: Any = LedgerEntry.objects.filter(pk__in=newest).values_list("pk", "observation")
    return {newest[entry]: observation or {} for entry, observation in observations}


def build_loop_facts(
    loop: Loop,
    ticks: Sequence[LedgerTick],
    mode_override: Override | None = None,
    observation: Mapping[str, Any] | None = None,
) -> LoopFacts:
    try:
        settings = guard.read_settings(catalog.get_law(loop.law), loop.guard)
    except BadInput:  # A loop with invalid settings has the default swing.
        settings = {setting.name: setting.default for setting in guard.PARAMETERS}
    mode = mode_override.value if mode_override else loop.mode
    held_since = None
    if mode_override is not None and mode in (Loop.Mode.HOLD, Loop.Mode.MANUAL) and mode_override.occurrence is None:
        held_since = mode_override.created_at.timestamp()  # a planned window was announced, so nobody forgot it
    return LoopFacts(
        id=loop.pk,
        name=loop.name,
        law=loop.law,
        target=loop.target,
        interval_seconds=loop.interval_seconds,
        swing=float(settings["oscillation_swing"]),
        ticked_at=loop.ticked_at.timestamp() if loop.ticked_at else None,
        held_since=held_since,
        mode=mode,
        ticks=list(ticks),
        cause=(observation or {}).get("cause"),
        is_late=bool((observation or {}).get("late_seconds")),
    )


def list_failed_plans(since: datetime) -> list[FailureRecord]:
    rows = Plan.objects.filter(state=Plan.State.FAILED, ended_at__gte=since).order_by("pk")
    return [FailureRecord(row.pk, row.title, row.ended_at.timestamp(), row.note) for row in rows if row.ended_at]


def list_failed_runs(since: datetime) -> list[FailureRecord]:
    """Return the newest failed run of each task that has not succeeded since."""
    done = Run.objects.filter(state=Run.State.DONE, ended_at__gte=since - timedelta(days=1))
    succeeded = dict(done.values_list("task_id").annotate(last=Max("ended_at")))
    rows = Run.objects.filter(state=Run.State.FAILED, ended_at__gte=since).select_related("task").order_by("pk")
    newest = {row.task_id: row for row in rows}
    return [
        FailureRecord(run.pk, run.task.name, run.ended_at.timestamp(), run.error)
        for run in newest.values()
        if run.ended_at and (run.task_id not in succeeded or succeeded[run.task_id] < run.ended_at)
    ]


def list_failing_receivers(since: datetime) -> list[FailingReceiver]:
    """Return the receivers that fail.

    They are enabled, with a message that failed and waits for another try or was given up recently, and with none
    delivered since.
    """
    trouble = Message.objects.filter(
        Q(state=Message.State.WAITING, tries__gt=0) | Q(state=Message.State.FAILED, due_at__gte=since),
        receiver__enabled=True,
    ).exclude(error__in=Message.NO_FAULT)
    # The contents of the messages are not read: each check does this, and thousands may wait.
    messages = list(trouble.select_related("receiver").defer("content").order_by("pk"))
    failed = {message.receiver_id for message in messages if message.state == Message.State.FAILED}
    # Times in the future date from before a clock was set back.
    arrived = Message.objects.filter(receiver__in=failed, state=Message.State.SENT, sent_at__lte=timezone.now())
    reached = dict(arrived.order_by().values_list("receiver").annotate(Max("sent_at")))
    grouped: dict[str, list[Message]] = {}
    for message in messages:
        arrived_at = reached.get(message.receiver_id)
        if message.state == Message.State.WAITING or arrived_at is None or arrived_at <= message.due_at:
            grouped.setdefault(message.receiver.name, []).append(message)
    return [
        FailingReceiver(
            name,
            max((row.tries for row in rows if row.state == Message.State.WAITING), default=0),
            sum(row.state == Message.State.FAILED for row in rows),
            rows[-1].error,
        )
        for name, rows in grouped.items()
    ]
