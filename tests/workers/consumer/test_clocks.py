"""A worker host, or one that sends workers, whose clock is off by ten minutes: work goes on as ever."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bench.faults.preloaded import CLOCK, write_number
from console import release
from queues import keys
from queues.segments.segment import Segment
from tests.waiting import until
from tests.workers.samples import fill
from workers.consumer.work_report import RUNNING_EXPIRES_SECONDS

pytestmark = [pytest.mark.faults, pytest.mark.slow]
WAIT_SECONDS = 60.0
HANGING = "python:tests.workers.consumer.handler_samples.sleep_deaf"
SEND = """
import django, sys
django.setup()
from queues import keys
from queues.topology import Topology
from workers.coordination.connections import control_server
from workers.coordination.plant_clock import get_plant_clock
from workers.plants.steered import PublishedPlant
PublishedPlant(control_server(), get_plant_clock().get_unix_time).start_workers("alert", "n1", 1, [sys.argv[1]])
"""


@pytest.fixture
def clocked(tmp_path, monkeypatch):
    """In its block programs are started by a clock that is so many seconds ahead."""
    library = CLOCK.build(tmp_path)
    if library is None:
        pytest.skip("needs a C compiler (cc) for a clock of its own")

    @contextmanager
    def by_a_clock(ahead_seconds: int) -> Iterator[None]:
        number = tmp_path / f"clock-{ahead_seconds}"
        write_number(number, ahead_seconds)
        with monkeypatch.context() as environment:
            environment.setenv("LD_PRELOAD", str(library))
            environment.setenv(CLOCK.variable, str(number))
            yield

    return by_a_clock


def send(url: str, data: Path, worker_id: str) -> None:
    environment = {**os.environ, "REDIS_URL": url, "WEIR_DATA": str(data)}
    environment["DJANGO_SETTINGS_MODULE"] = "console.settings"
    command = [sys.executable, "-c", SEND, worker_id]
    subprocess.run(command, cwd=release.ROOT, env=environment, check=True)


@pytest.mark.parametrize(("of_host", "of_sender"), [(600, 0), (-600, 0), (0, 600), (0, -600)])
def test_a_clock_that_is_off_by_ten_minutes_keeps_no_worker_from_its_work(
    control, control_server, nodes, plant_topology, host, clocked, tmp_path, of_host, of_sender
):
    control.set(keys.TOPOLOGY, plant_topology.to_json())
    fill(Segment(nodes["n1"].client(), "alert"), 6)
    with clocked(of_host):
        host.start()
    for number in range(3):
        with clocked(of_sender):
            send(control_server.url, tmp_path, f"worker-{number}")

    def work() -> dict[bytes, bytes]:
        return control.hgetall(keys.WORK.build("alert", "n1"))

    until(lambda: int(work().get(b"finished", 0)) == 3, WAIT_SECONDS)
    assert int(work()[b"started"]) == int(work()[b"submitted"]) == 3
    assert control.zcard(keys.SUBMITTED.build("alert", "n1")) == 0


def test_a_worker_is_counted_as_running_by_the_control_servers_clock(
    control, control_server, nodes, plant_topology, host, clocked, tmp_path
):
    hanging = replace(plant_topology.queues["alert"], handler=HANGING)
    topology = replace(plant_topology, queues={**plant_topology.queues, "alert": hanging})
    control.set(keys.TOPOLOGY, topology.to_json())
    fill(Segment(nodes["n1"].client(), "alert"), 1)
    with clocked(600):
        host.start()
    send(control_server.url, tmp_path, "worker-0")
    running = keys.RUNNING.build("alert", "n1")
    ((_, signed_at),) = until(lambda: control.zrange(running, 0, -1, withscores=True), WAIT_SECONDS)
    assert abs(signed_at - control.time()[0]) < RUNNING_EXPIRES_SECONDS
