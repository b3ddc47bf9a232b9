"""Preview of what a rule would have done over the last day.

It uses the same conditions and the same state machine on stored data: the metrics, and the ledger. A day's metrics have
two rows a minute (the minimum and the maximum), so a duration below a minute is judged on half-minutes. An alert that
came back within 10 minutes counts once, as it does live.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import redis

from common.errors import BadTopology
from queues import keys
from queues.topology import Topology
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.conditions.condition import Condition
from workers.alerts.conditions.evidence import Evidence, LedgerTick
from workers.alerts.conditions.gatherer import build_loop_facts, list_failed_plans, list_failed_runs
from workers.alerts.lifecycle import automaton
from workers.alerts.lifecycle.automaton import Episode
from workers.alerts.lifecycle.models import AlertRule
from workers.alerts.rules import rules
from workers.control.ledger import folds
from workers.documents.nodes import NodeStatus
from workers.documents.pipeline import PipelineStatus
from workers.documents.plants import PlantStatus, SensorStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import PlantTotals, Snapshot
from workers.history import metric_history
from workers.models import LedgerEntry
from workers.steering.scope import list_active_loops

RANGE_SECONDS = 86_400.0
LEDGER_STEP_SECONDS = 60.0
TICK_FIELDS = ("at", "acted", "guarded", "limited_by")
# Rows this far apart have a gap between them, in which nothing was stored.
GAP_SECONDS = 150.0
Subject = tuple[tuple[str, str], ...]  # its labels


@dataclass(frozen=True)
class FiredEpisode:
    """One episode that would have fired."""

    labels: Mapping[str, str]
    at: float
    until: float | None


@dataclass(frozen=True)
class Preview:
    """The result of a preview.

    `fired`: in the order of time; `stored_seconds`: how much of the day has data; `why`: why there is no more.
    """

    fired: Sequence[FiredEpisode]
    stored_seconds: float
    why: str = ""

    def format_sentence(self) -> str:
        """Return a sentence such as: Would have fired 3 times in the last 24 h."""
        if self.why:
            return self.why
        hours = self.stored_seconds / 3_600
        span = "24 h" if hours >= 23.5 else f"{hours:.1f} h" if hours >= 1 else f"{self.stored_seconds / 60:.0f} min"
        count = len(self.fired)
        if not count:
            return f"Would not have fired in the last {span}."
        return f"Would have fired {'once' if count == 1 else f'{count} times'} in the last {span}."


class NothingStored(Exception):  # noqa: N818
    """Nothing is stored to judge by; the message says why."""


def preview(rule: AlertRule, control: redis.Redis, data: Path, now: datetime) -> Preview:
    """Return what this rule, saved or not, would have done. Raises what the control server raises."""
    watched, until = CONDITIONS[rule.condition], now.timestamp()
    since = until - RANGE_SECONDS
    if watched.source == "ledger":
        stored = _iterate_ledger_evidence(since, until, rule.window_seconds)
    elif watched.series and watched.has_preview:
        stored = _iterate_metric_evidence(watched, control, data, since, until)
    elif watched.source == "records" and watched.counts:
        stored = _iterate_failure_evidence(since, until)
    else:
        why = "No preview: this condition has no stored data. The rule is evaluated from now on."
        return Preview([], 0.0, why)
    try:
        return _evaluate_rule(rule, stored)
    except NothingStored as nothing:
        return Preview([], 0.0, str(nothing))


class _Subject:
    """One subject on its way through the stored checks."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = labels
        self.episode: Episode | None = None
        self.fired: list[FiredEpisode] = []

    def step(self, signal: automaton.Signal, terms: automaton.Terms, now: float, elapsed: float) -> None:
        before = self.episode
        after = automaton.advance(before, signal, terms, now, elapsed)
        began = after is not None and after.state == automaton.FIRING
        if began and (before is None or before.state == automaton.PENDING):
            last = self.fired[-1].until if self.fired else None
            if last is not None and now - last <= automaton.SAME_SECONDS:
                self.fired[-1] = replace(self.fired[-1], until=None)
            else:
                self.fired.append(FiredEpisode(self.labels, now, None))
        if after is not None and after.state == automaton.RESOLVED:
            self.fired[-1] = replace(self.fired[-1], until=now)
            after = None
        self.episode = after


def _evaluate_rule(rule: AlertRule, looks: Iterable[Evidence]) -> Preview:
    subjects: dict[Subject, _Subject] = {}
    thresholds, terms = rules.build_thresholds(rule), rules.build_terms(rule)
    before, stored = None, 0.0
    for evidence in looks:
        passed = 0.0 if before is None else evidence.now - before
        # Stored rows lie further apart than checks do: the time between two of them was watched.
        elapsed = passed if passed > GAP_SECONDS else 0.0
        stored += passed - elapsed
        before = evidence.now
        seen: dict[Subject, automaton.Signal] = {}
        for reading in CONDITIONS[rule.condition].read(evidence, rule.window_seconds):
            if rules.matches(rule.matchers, {**reading.labels, "rule": rule.name, "severity": rule.severity}):
                seen[tuple(sorted(reading.labels.items()))] = thresholds.compute_signal(reading.value)
        for key in seen.keys() | subjects.keys():
            subject = subjects.setdefault(key, _Subject(dict(key)))
            subject.step(seen.get(key, "off"), terms, evidence.now, elapsed)
    fired = sorted((fired_at for row in subjects.values() for fired_at in row.fired), key=lambda firing: firing.at)
    return Preview(fired, stored, "" if stored else "No data is stored for the last 24 h.")


def _iterate_metric_evidence(
    watched: Condition, control: redis.Redis, data: Path, since: float, until: float
) -> Iterator[Evidence]:
    """Yield a snapshot of the stored values for each stored row, as far as the condition reads it."""
    try:
        topology = Topology.from_json(control.get(keys.TOPOLOGY))
    except BadTopology:
        raise NothingStored("No preview: the plant has no nodes yet, so no data is stored.") from None
    stored = control.get(keys.SNAPSHOT)
    observed = Snapshot.from_json(stored).plants if stored else {}
    sensors = [(name, sensor) for name, plant in observed.items() for sensor in plant.sensors]
    names = [
        name.format(queue=queue, node=node, plant=plant, sensor=sensor)
        for name in watched.series
        for queue in (topology.queues if "{queue}" in name else [""])
        for node in (topology.nodes if "{node}" in name else [""])
        for plant, sensor in (sensors if "{sensor}" in name else [("", "")])
    ]
    columns = metric_history.read_columns(control, data, since, until, names)
    for at, now in enumerate(columns.pop("at")):
        assert now is not None
        values = {name: column[at] for name, column in columns.items()}
        yield Evidence(now=now, snapshot=_build_snapshot(topology, values))


def _build_snapshot(topology: Topology, values: Mapping[str, float | None]) -> Snapshot:
    """Return a snapshot that contains only the values of these series, each at its place.

    An example of a series is queues.alert.wait_seconds. A name in the middle may contain dots itself.
    """
    places: dict[tuple[str, str], dict[str, Any]] = {}
    for series, value in values.items():
        part, _, rest = series.partition(".")
        name, _, key = rest.rpartition(".")
        places.setdefault((part, name), {})[key] = value
    plants: dict[str, dict[str, SensorStatus]] = {}
    for (part, name), row in places.items():
        plant, is_sensor, sensor = name.partition(".sensors.")
        if part == "plants" and is_sensor:
            plants.setdefault(plant, {})[sensor] = SensorStatus(**row)
    return Snapshot(
        totals=PlantTotals(**places.get(("totals", ""), {})),
        pipeline=PipelineStatus(state="running", **places.get(("pipeline", ""), {})),
        queues={
            name: QueueStatus(kind=spec.kind, **places.get(("queues", name), {}))
            for name, spec in topology.queues.items()
        },
        nodes={
            name: NodeStatus(memory_capacity_bytes=spec.capacity.memory_bytes, **places.get(("nodes", name), {}))
            for name, spec in topology.nodes.items()
        },
        plants={name: PlantStatus(state="seen", sensors=sensors) for name, sensors in plants.items()},
    )


def _iterate_ledger_evidence(since: float, until: float, window_seconds: float) -> Iterator[Evidence]:
    """Yield the state of the ledger at each minute."""
    checks: dict[int, list[LedgerTick]] = {}
    first_at, last_at = (datetime.fromtimestamp(at, UTC) for at in (since - window_seconds, until))
    for entry in folds.iterate_ticks(LedgerEntry.objects.all(), first_at, last_at, only=TICK_FIELDS):
        at = entry.at.timestamp()
        tick = LedgerTick(entry.pk, at, entry.acted, entry.guarded, entry.limited_by, entry.verdict)
        checks.setdefault(entry.loop_id, []).append(tick)
    first = min((ticks[0].at for ticks in checks.values()), default=until)
    loops = [(loop, checks.get(loop.pk, [])) for loop in list_active_loops()]
    times = {loop.pk: [tick.at for tick in ticks] for loop, ticks in loops}
    now = max(since, first)
    while now <= until:
        facts = []
        for loop, ticks in loops:
            end = bisect_right(times[loop.pk], now)
            start = bisect_right(times[loop.pk], now - window_seconds, hi=end)
            facts.append(build_loop_facts(loop, ticks[start:end]))
        yield Evidence(now=now, loops=facts)
        now += LEDGER_STEP_SECONDS


def _iterate_failure_evidence(since: float, until: float) -> Iterator[Evidence]:
    plans, runs = (read(datetime.fromtimestamp(since, UTC)) for read in (list_failed_plans, list_failed_runs))
    now = since
    while now <= until:
        yield Evidence(
            now=now, plans=[plan for plan in plans if plan.at <= now], runs=[run for run in runs if run.at <= now]
        )
        now += LEDGER_STEP_SECONDS
