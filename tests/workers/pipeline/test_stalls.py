"""A worker that hangs, and a death in the middle of stopping: said, mended, and nothing is lost over it."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

from queues.publishing.client import Client
from tests.waiting import MAX_SECONDS, until
from tests.workers.pipeline.pipeline_process import (
    CHUNKS,
    START_SECONDS,
    Running,
    assert_each_found_once,
    chunks_of_events,
    publish_end,
    published,
    removed,
    undisturbed,
)

STUCK_SECONDS = 25
pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def running(tmp_path, control_server, control, plant_topology):
    application = Running(tmp_path, control_server.url, control, WEIR_PIPELINE_STUCK_SECONDS=str(STUCK_SECONDS))
    yield application
    application.end()


@contextmanager
def frozen(name: str, below: int) -> Iterator[None]:
    """Every process of this name below that one stands still; at the end all of them are gone."""
    found = []
    for process in psutil.Process(below).children(recursive=True):
        with suppress(psutil.Error):  # it may end while one looks
            if name in " ".join(process.cmdline()):
                process.suspend()
                found.append(process)
    assert found
    try:
        yield
    finally:
        for process in found:
            with suppress(psutil.Error):
                process.kill()


def test_workers_that_hang_are_reported_and_a_new_start_loses_nothing(running, control_server, control, nodes):
    running.start()
    noise = [{"type": "N", "source": "s"}] * 100
    with published(control_server.url, lambda *_: noise) as count:
        until(lambda: running.works_past(2), START_SECONDS)
        below = psutil.Process(running.process.pid).children(recursive=True)
        assert "source_runner" not in " ".join(part for each in below for part in each.cmdline())
        with frozen("worker_daemon", running.process.pid):
            until(lambda: running.status()["state"] == "stalled")
            said = running.status()["applications"]["exact"]["hindrance"]
            assert said.startswith("replica iap") and "has not finished its batch" in said
            # It ends itself with all that hangs; the supervisor starts it again.
            until(lambda: running.process.poll() is not None)
            assert running.status()["state"] == "failed"
        running.start()
        batch = running.status()["batch"] or 0
        until(lambda: running.works_past(batch + 2), START_SECONDS)
    until(lambda: removed(nodes) == count[0])
    assert int(control.hget("weir:pipeline:room:exact", "in_flight_events")) == 0


def test_matches_are_those_of_an_undisturbed_run_though_it_is_killed_while_stopping(
    running, control_server, control, nodes, tmp_path
):
    begin = float(int(time.time()) - 3_600)
    chunks = chunks_of_events(11, begin)
    expected = undisturbed(tmp_path / "exact.yaml", chunks)
    remaining = iter(chunks)
    batch = -1
    with Client(control_server.url, producer="test") as client:
        for delay_seconds in (0.0, 0.15, 0.6):
            running.start()
            for _, chunk in zip(range(CHUNKS // 4), remaining, strict=False):
                client.publish("telemetry", chunk)
                threading.Event().wait(0.05)
            until(lambda past=batch: running.works_past(past), START_SECONDS)
            batch = running.status().get("batch") or batch
            running.process.send_signal(signal.SIGTERM)
            threading.Event().wait(delay_seconds)
            os.killpg(running.process.pid, signal.SIGKILL)
            running.process.wait(MAX_SECONDS)
        running.start()
        for chunk in remaining:
            client.publish("telemetry", chunk)
        publish_end(client, begin)
        until(lambda: running.works_past(batch), START_SECONDS)
    assert_each_found_once(nodes, control, expected)
