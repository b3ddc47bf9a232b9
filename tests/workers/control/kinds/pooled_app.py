"""An attached app of which the snapshot shows pools; what its loops order is noted, and may be followed."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import redis

from common.stored_document import convert
from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from tests.workers.loops import ensured
from workers.control.engine import tick_due
from workers.documents.plants import PlantStatus
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.plants.foreign import adapters
from workers.plants.models import PlantOrder, RegisteredPlant
from workers.plants.plant import ElasticPlant
from workers.plants.steered import PublishedPlant
from workers.snapshot.control_record import control_record

NOW = datetime(2026, 11, 20, 3, 12, tzinfo=UTC)
PLANT, ONE, TWO = "shop", "celery@one", "celery@two"


class PooledApp(ElasticPlant):
    """tasks: of each pool, as there are. is_idle: whether processes end when fewer are ordered."""

    run_seconds = 0.8  # of a task

    def __init__(self, control: redis.Redis, monkeypatch: Any, **tasks: int) -> None:
        self.control, self.now = control, NOW
        self.tasks = {f"celery@{name}": count for name, count in (tasks or {"one": 2}).items()}
        self.is_idle, self.fixed, self.ordered = True, None, []
        self.completions: dict[str, dict[str, Any]] = {}
        self.measures: dict[str, float | None] = {}
        self.waits_seconds: float | None = 0.0
        self.waiting: float | None = None
        self.row: dict[str, Any] = {}  # of the snapshot, besides
        RegisteredPlant.objects.create(name=PLANT, kind="celery", url="redis://127.0.0.1:1/0")
        monkeypatch.setattr(adapters, "open_bounded", lambda row: _Kept(self))
        self.publish()

    def ensured(self, *laws: str) -> list[Loop]:
        return ensured(self.control, laws, snapshot=self.snapshot())

    def get_topology(self) -> MeasuredTopology:
        queue = MeasuredOperator("queue celery", "source", 1, 1, 1, "it is a queue")
        pools = {
            name: MeasuredOperator(
                name, "operator", count, 1, 100, self.fixed, waiting=self.waiting, tasks=(dict(self.measures),) * count
            )
            for name, count in self.tasks.items()
        }
        links = tuple(Link("queue celery", name, self.waits_seconds) for name in pools)
        operators = {"queue celery": queue, **pools}
        return MeasuredTopology(PLANT, self.now.timestamp(), 10.0, operators, links)

    def set_parallelism(self, tasks: Any) -> None:
        self.get_topology().check_tasks(tasks)
        self.ordered.append(dict(tasks))
        for name, count in tasks.items():
            if count > self.tasks[name] or self.is_idle:
                self.tasks[name] = count

    def hold(self, seconds: float) -> None:
        pass

    def release(self) -> None:
        pass

    def load(self, per_second: float, waits_seconds: float = 0.0, **measures: float | None) -> None:
        """What comes to pool ONE, evenly to its processes."""
        count = self.tasks[ONE]
        each = per_second * 10.0 / count
        run = {"service_seconds": self.run_seconds, "utilisation": min(1.0, per_second * self.run_seconds / count)}
        self.measures = {"inputs": each, "executions": each, "latency_seconds": 0.0, **run, **measures}
        self.waits_seconds = waits_seconds

    def ticks(self, law: str, count: int, per_second: float, **more: float) -> list[LedgerEntry]:
        entries = []
        for _ in range(count):
            self.load(per_second, **more)
            entries += self.tick(5.0, law)
        return entries

    def work(self, rate_of: Callable[[int], float], samples: int = 40) -> None:
        """Five seconds in which all processes of all pools have work."""
        for name, count in self.tasks.items():
            done = self.completions.setdefault(
                name, {"since": 1.0, "seq": 0, "full_seconds": 0.0, "recent_seconds": [], "size": count}
            )
            before = done["recent_seconds"] if done["size"] == count else []
            done["recent_seconds"] = (before + [1 / rate_of(count)] * samples)[-64:]
            done |= {"seq": done["seq"] + samples, "full_seconds": done["full_seconds"] + 5.0, "size": count}
            done["per_second"] = rate_of(count)

    def snapshot(self) -> Snapshot:
        completions = {
            name: {key: value for key, value in done.items() if key != "size"}
            for name, done in self.completions.items()
            if name in self.tasks
        }
        row = {"kind": "celery", "state": "seen", "age_seconds": 0.5, "completions": completions}
        row |= {"topology": self.get_topology().to_document(), **self.row}
        loops = control_record(self.now).loops
        plants = {PLANT: convert(PlantStatus, row, "plant")}
        return Snapshot(at=self.now.timestamp(), plant="main", plants=plants, loops=loops)

    def publish(self) -> None:
        self.control.set("weir:snapshot", self.snapshot().to_json())

    def tick(self, seconds: float = 5.0, *laws: str) -> list[LedgerEntry]:
        self.now += timedelta(seconds=seconds)
        self.publish()
        plant = PublishedPlant(self.control, self.now.timestamp)
        return tick_due(plant, self.now, self.control, laws=laws or None)

    def orders(self) -> dict[str, int]:
        return dict(PlantOrder.objects.values_list("operator", "tasks"))


class _Kept:
    """The app itself, instead of a client of it."""

    def __init__(self, app: PooledApp) -> None:
        self._app = app

    def __enter__(self) -> PooledApp:
        return self._app

    def __exit__(self, *_: object) -> None:
        pass
