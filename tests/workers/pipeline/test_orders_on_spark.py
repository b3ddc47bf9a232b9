"""A person restarts, stops and starts an application that runs on Spark; the status says so."""

import pytest

from queues.publishing.client import Client
from tests.waiting import until
from tests.workers.pipeline.pipeline_process import START_SECONDS, Running
from workers.pipeline.declaration.declared import Orders
from workers.pipeline.status.published import list_newest_lines

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
NOISE = [{"type": "N", "source": "s"}] * 100


@pytest.fixture
def running(tmp_path, control_server, control, plant_topology):
    application = Running(tmp_path, control_server.url, control)
    yield application
    application.end()


def row(running: Running) -> dict:
    return running.status().get("applications", {}).get("exact", {})


def works(running: Running, url: str, batch: int) -> bool:
    """It works what is published; so there is always something."""
    with Client(url, producer="steady") as client:
        client.publish("telemetry", NOISE)
    return row(running).get("state") == "running" and (row(running).get("batch") or 0) > batch


def test_restart_stop_and_start_are_obeyed_within_seconds(running, control_server, control):
    url, orders = control_server.url, Orders(control)
    running.start()
    until(lambda: works(running, url, 0), 2 * START_SECONDS)
    assert row(running)["restarts"]["count"] == 0
    orders.restart("exact", "anna", "a test")
    until(lambda: row(running)["restarts"]["count"] == 1, START_SECONDS)
    batch = row(running)["batch"] or 0
    until(lambda: works(running, url, batch), START_SECONDS)
    orders.stop("exact", "anna", "a test")
    until(lambda: row(running)["state"] == "stopped", START_SECONDS)
    orders.start("exact", "anna", "a test")
    until(lambda: works(running, url, row(running)["batch"] or 0), START_SECONDS)
    assert any("was stopped by anna: a test" in line.text for line in list_newest_lines(control))
    assert running.process.poll() is None
