"""The flow loop on a real pipeline that gets half as much again as it can work, while others take the
processors: the result queue keeps its free space, nothing is lost, all is worked in the end.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from queues.publishing.client import Client
from tests.waiting import until
from tests.workers.loops import PIPELINE, ensured
from tests.workers.pipeline.pipeline_process import START_SECONDS, Running, published, removed
from workers.control.engine import tick_due
from workers.models import Loop
from workers.pipeline.declaration.controls import steer
from workers.snapshot.local import LocalPlant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
SECONDS = 180.0
OVERLOAD = 1.5
AROUND = 0.15
RESULT_BYTES = 8 * 2**20
FIRST_EVENTS, FIRST_SECONDS = 400_000, 50.0
HOG = "while True: pass"
# Patterns that only the interpreter finds, on one task: a slow operator, beside which producers cost little.
PATTERNS = "".join(
    f"  - {{name: p{n}, pattern: 'SEQ(A; AND(B, C); D+; A)', within_seconds: 5, quiet_seconds: 3600}}\n"
    for n in range(10)
)
DECLARATION = f"""
name: exact
queues: [telemetry]
sink: alert
lateness_seconds: 0.5
key: source
operators:
- name: slow
  patterns:
{PATTERNS}"""


@pytest.fixture
def running(tmp_path, control_server, control, plant_topology):
    application = Running(tmp_path, control_server.url, control)
    (tmp_path / "exact.yaml").write_text(DECLARATION)
    controls = {"result_bytes": RESULT_BYTES, "admit_events_per_batch": 4_000, "parallelism": 1}
    steer(control, "exact", controls)
    application.start()
    yield application
    application.end()


def events(number: int, first: int = 0) -> list[dict]:
    return [{"type": "ABCD"[n * 7 % 4], "source": f"s{n % 50}", "value": 1.0} for n in range(first, first + number)]


def earlier() -> list[dict]:
    """What has come before, in its time: what bears one time leaves the queue at once."""
    begin, apart = time.time() - FIRST_SECONDS, FIRST_SECONDS / FIRST_EVENTS
    return [{**event, "time": begin + n * apart} for n, event in enumerate(events(FIRST_EVENTS))]


@contextmanager
def hogged(processes: int = 2) -> Iterator[None]:
    hogs = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in hogs:
            each.kill()
            each.wait()


class Loops:
    """Ticks the flow loop as beat does, and notes the free space beside."""

    def __init__(self, control, running: Running) -> None:
        self._control, self._running = control, running
        self._plant = LocalPlant(control)
        self.setpoint = float(RESULT_BYTES / 2)
        ensured(control, PIPELINE)
        loop = Loop.objects.get(name="flow/exact")
        loop.parameters = {**loop.parameters, "setpoint": self.setpoint}
        loop.save()

    def row(self) -> dict:
        return self._running.status()["applications"]["exact"]

    def follow(self, seconds: float) -> list[float]:
        """For so long; the shares that the free space was off the reference by, two a second."""
        found, ends, number = [], time.monotonic() + seconds, 0
        while time.monotonic() < ends:
            if number % 4 == 0:
                tick_due(self._plant, datetime.now(UTC), self._control, laws=("flow",))
            number += 1
            threading.Event().wait(0.5)
            free = self.row()["result_queue"]["free_bytes"]
            found.append(free / self.setpoint - 1)
        return found


def count_published(loops: Loops) -> int:
    """Events of which the replicas have published the result."""
    row = loops.row()
    return row["admitted_events"] - row["in_flight_events"]


def capacity(loops: Loops) -> float:
    """Events/s that it works while there is more than enough, once what runs it has warmed up."""
    loops.follow(45)
    rates = []
    for _ in range(5):
        loops.follow(4)
        rates.append(loops.row()["operators"]["slow"]["in_per_second"])
    return max(rates)


def test_free_space_keeps_to_its_reference_over_an_overload_and_a_hog_and_all_is_worked(
    running, control_server, control, nodes, record_property
):
    until(lambda: running.status().get("state") == "running", START_SECONDS)
    loops = Loops(control, running)
    with Client(control_server.url, producer="first") as client:
        client.publish("telemetry", earlier())
        until(lambda: loops.follow(2) and loops.row()["operators"]["slow"]["in_per_second"] > 0, START_SECONDS)
        most = capacity(loops)

        def due(seconds: float, count: int) -> list[dict]:
            return events(int(seconds * OVERLOAD * most) - count, count)

        with published(control_server.url, due) as count:
            # From wherever the measurement of the capacity left it, a minute at most.
            settled = any(abs(loops.follow(2)[-1]) < AROUND / 2 for _ in range(30))
            off = loops.follow(SECONDS / 3)
            with hogged():
                off += loops.follow(SECONDS / 3)
            off += loops.follow(SECONDS / 3)
        waiting = FIRST_EVENTS + count[0] - count_published(loops)
        steer(control, "exact", {"parallelism": 2})
        until(lambda: loops.follow(2) and removed(nodes) >= FIRST_EVENTS + count[0], 300)
    assert waiting > 0, "more came than it could work"
    assert removed(nodes) == count_published(loops) == FIRST_EVENTS + count[0]
    assert loops.row()["late_events"] == 0
    record_property("worst_share", max(map(abs, off)))
    assert settled, "free space did not come back within a minute"
    assert max(map(abs, off)) <= AROUND
