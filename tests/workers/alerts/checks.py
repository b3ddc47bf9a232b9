"""Looks at a plant in memory, one every two seconds, written to the real database."""

from datetime import UTC, datetime
from typing import Any

from django.utils import timezone

from tests.workers.snapshots import snapshot_of
from workers.alerts.conditions.evidence import Evidence, LedgerTick, LoopFacts
from workers.alerts.delivery import dispatcher
from workers.alerts.evaluation import evaluator
from workers.alerts.lifecycle.models import Alert, AlertEvent, AlertRule, Receiver
from workers.alerts.rules import rules

START = datetime(2026, 1, 5, 3, 0, tzinfo=UTC).timestamp()


def node(state: str = "NORMAL", age_seconds: float | None = 0.4, utilisation: float = 0.3) -> dict[str, Any]:
    return {
        "state": state,
        "stale": state == "OFFLINE",
        "age_seconds": age_seconds,
        "utilisation": utilisation,
        "memory_bytes": 10,
        "memory_capacity_bytes": 100,
        "points": 1000,
        "drained": False,
    }


def queue(wait_seconds: float | None = 0.4, kind: str = "jobs", nodes: tuple[str, ...] = ("n1",)) -> dict[str, Any]:
    return {
        "kind": kind,
        "wait_seconds": wait_seconds,
        "waiting_events": 12,
        "latency_p95_seconds": None,
        "dead_letters": 0,
        "containers": {name: {"points": 500, "waiting_events": 6} for name in nodes},
    }


def plant(**parts: Any) -> dict[str, Any]:
    """A calm plant of two nodes and two queues; parts take the place of whole tables."""
    return {
        "at": START,
        "nodes": {"n1": node(), "n2": node()},
        "queues": {"alert": queue(), "telemetry": queue(kind="pipeline", nodes=("n2",))},
        "totals": {"worker_slots": 2, "workers_busy": 0, "shed_share": 0.0},
        "pipeline": {"state": "running", "age_seconds": 0.5, "watermark_lag_seconds": 1.0},
        "overrides": [],
        **parts,
    }


class Looks:
    """The evaluator's looks, with a clock that a test moves."""

    def __init__(self) -> None:
        self.now, self.fence, self.snapshot = START, 1, plant()
        self.more: dict[str, Any] = {}

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    def evidence(self) -> Evidence:
        return Evidence(
            now=self.now, snapshot=self.snapshot and snapshot_of(self.snapshot), silent_seconds=0.2, **self.more
        )

    def look(self, seconds: float = 2.0) -> evaluator.AlertCheck:
        self.now += seconds
        return evaluator.check(self.evidence(), self.fence)

    def pass_seconds(self, seconds: float, every_seconds: float = 2.0) -> None:
        for _ in range(round(seconds / every_seconds)):
            self.look(every_seconds)


def rule(name: str = "node-lost", **fields: Any) -> Any:
    """A rule that tells `reporter` at once, unless said otherwise."""
    Receiver.objects.get_or_create(name="desk", defaults={"channel": "email", "settings": {"addresses": ["a@b"]}})
    notify = [{"after_minutes": 0, "receivers": ["desk"]}]
    given = {"condition": "node_lost", "title": "Node {node} is lost", "threshold": 10, "clear_threshold": 3}
    given |= {"keep_seconds": 10, "escalation": notify, "severity": "critical", **fields}
    return rules.define(name, given, datetime.fromtimestamp(START, UTC))


def lost(name: str = "n1", seconds: float = 14.0) -> dict[str, Any]:
    nodes = {**plant()["nodes"], name: node("OFFLINE", seconds)}
    return plant(nodes=nodes)


def fire(looks: Looks) -> None:
    """A node is lost; its alert's messages are due."""
    looks.snapshot = lost()
    looks.look()
    looks.now += 6


def mend(looks: Looks) -> None:
    """The node is back for so long that its alert has ended."""
    looks.snapshot = plant()
    looks.pass_seconds(14)
    looks.now += 6


def deliver(looks: Looks, alive: bool = True) -> int:
    return dispatcher.deliver(lambda: looks.at, lambda: alive)


def shipped(*names: str) -> None:
    """Of the rules that a plant starts with, these alone."""
    rules.ensure_rules(timezone.now())
    AlertRule.objects.exclude(name__in=names).update(enabled=False)


def banded(minute: float | None, days: float = 3.0) -> dict[str, Any]:
    """A queue whose rate is expected to be from 20 to 30 events/s."""
    band = {"low": 20.0, "high": 30.0, "days": days, "minute": minute}
    return plant(bands={"queues": {"alert": {"in_per_second": band}}})


def attached(state: str = "seen", **shown: Any) -> dict[str, Any]:
    return plant(plants={"shop": {"kind": "celery", "state": state, **shown}})


def loop_facts(looks: Looks, ticks: list[tuple[str | None, str, float | None]]) -> LoopFacts:
    """A loop whose last ticks had (limited_by, verdict, value), one each 5 s, the last just now."""
    times = [looks.now - 5.0 * (len(ticks) - 1 - at) for at in range(len(ticks))]
    rows = [
        LedgerTick(at, time, True, value, limit, verdict)
        for at, (time, (limit, verdict, value)) in enumerate(zip(times, ticks, strict=True))
    ]
    return LoopFacts(
        1, "worker_rate/alert/n1", "worker_rate", {"queue": "alert", "node": "n1"}, 5.0, 5.0, looks.now, ticks=rows
    )


def the_alert(**fields: Any) -> Alert:
    return Alert.objects.get(**fields)


def kinds(alert: Alert) -> list[str]:
    return list(AlertEvent.objects.filter(alert=alert).order_by("pk").values_list("kind", flat=True))
