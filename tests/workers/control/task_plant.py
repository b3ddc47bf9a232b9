"""A plant of which only the tasks of an application's operators change: they do as their loop asks."""

import math
from datetime import datetime, timedelta

import numpy as np
import redis

from queues import keys
from tests.console.conftest import sample_snapshot
from tests.console.pipeline_sample import DECLARATION, sample_application
from tests.workers.loops import PARALLELISM, ensured
from tests.workers.snapshots import snapshot_of
from workers.control.engine import tick_due
from workers.documents.snapshot import Snapshot
from workers.history import metrics
from workers.history.forecasts import ForecastSubjects, ForecastWatch
from workers.models import Loop
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.declaration.declared import Declarations, DeclarationText
from workers.pipeline.status.measures import WorkSample, compute_measures
from workers.plants.steered import PublishedPlant
from workers.snapshot.control_record import control_record

SECONDS = 10.0  # of a batch here
# Of an event: at the operator per event offered to the queue, and its service (s).
SHARES, SERVICES = {"hosts": 0.8, "sites": 0.3}, {"hosts": 0.02, "sites": 0.015}
MOST = 8
SUBJECTS = ForecastSubjects(applications={"performance": ("telemetry",)})

PHASE_SECONDS = 1_200.0  # of the wave in which a plant begins, whatever o'clock it is: the load rises


def offered(since_begin_seconds: float) -> float:
    """Events/s: two hours' waves."""
    return 90.0 + 60.0 * math.sin(2 * math.pi * (since_begin_seconds + PHASE_SECONDS) / 7_200)


class TaskPlant:
    """Ticks of `SECONDS`; snapshots are published and kept as the observer does."""

    def __init__(self, control: redis.Redis, now: datetime, base: dict | None = None) -> None:
        self.control, self.now = control, now
        self._metrics = metrics.MetricWriter(control)
        self._began_seconds = now.timestamp()
        self._base = base or sample_snapshot()
        self.foresight = ForecastWatch(self._past)
        Declarations(control).note_at_work(DeclarationText("performance", 0, DECLARATION))
        self.seen = self.snapshot()
        ensured(control, PARALLELISM, snapshot=self.seen)
        for loop in Loop.objects.filter(law__in=PARALLELISM[::2]):
            loop.parameters = {**loop.parameters, "maximum": MOST, "bound_seconds": 1.5}
            loop.interval_seconds = SECONDS
            loop.save()

    def tick(self) -> Snapshot:
        """A batch's time passes, and every law decides."""
        self.now += timedelta(seconds=SECONDS)
        self.seen = self.snapshot()
        plant = PublishedPlant(self.control, self.now.timestamp)
        for law in PARALLELISM:
            tick_due(plant, self.now, self.control, laws=(law,))
        self.seen = self.snapshot()
        at = f"{int(self.now.timestamp() * 1000)}-0"
        self._metrics.append(self.control, self.seen, at)
        return self.seen

    def snapshot(self) -> Snapshot:
        """Published as it is now, with what the loops decided last."""
        at = self.now.timestamp()
        rate = self._offered(at)
        row = sample_application()
        controls = Controls.read(self.control.get(keys.PIPELINE_CONTROLS.build("performance")), Controls())
        row["controls"]["tasks"] = dict(controls.tasks)
        for name, operator in row["operators"].items():
            self._work(operator, name, controls.count_tasks(name), rate)
        row["queues"] = ["telemetry"]
        found = {**self._base, "at": at}
        queues = {**found["queues"]}
        queues["telemetry"] = {**queues["telemetry"], "in_per_second": rate}
        found |= {
            "queues": queues,
            "pipeline": {
                **(found.get("pipeline") or {}),
                "state": "running",
                "age_seconds": 0.3,
                "cores": MOST,
                "applications": {"performance": row},
            },
            "loops": control_record(self.now).loops,
            "forecasts": self.foresight.collect(SUBJECTS, at).loads,
        }
        self.foresight.wait()
        seen = snapshot_of(found)
        self.control.set(keys.SNAPSHOT, seen.to_json())
        return seen

    def _offered(self, at_seconds: float) -> float:
        return offered(at_seconds - self._began_seconds)

    def _past(self, series: list[str], now_seconds: float) -> tuple[np.ndarray, np.ndarray]:
        at = now_seconds - np.arange(6 * 3_600, 0, -60.0)
        noise = np.random.default_rng(3).normal(1.0, 0.03, at.size)
        return at, np.tile(np.asarray([self._offered(each) for each in at]) * noise, (len(series), 1))

    @staticmethod
    def _work(operator: dict, name: str, tasks: int, rate: float) -> None:
        own = rate * SHARES[name]
        events = own * SECONDS / tasks
        seconds = min(SECONDS, events * SERVICES[name])
        done = round(seconds / SERVICES[name])
        sample = WorkSample(SECONDS / 2, events / 2, done // 2, 1, seconds / 2)
        operator |= {
            "in_per_second": own,
            "parallelism": tasks,
            "tasks": tasks,
            "utilisation": seconds / SECONDS,
            "work": [compute_measures([sample, sample], SECONDS)] * tasks,
        }
