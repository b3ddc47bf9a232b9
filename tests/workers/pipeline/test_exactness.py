"""The real application on real servers: killed twice, a node killed under it, the undisturbed result."""

import signal
import threading
import time

import pytest

from queues.publishing.client import Client
from tests.waiting import MAX_SECONDS, until
from tests.workers.pipeline.pipeline_process import (
    CHUNK_EVENTS,
    CHUNKS,
    START_SECONDS,
    Running,
    assert_each_found_once,
    chunks_of_events,
    publish_end,
    removed,
    undisturbed,
)


@pytest.fixture(params=["tasks", "micro-batches"])
def running(tmp_path, control_server, control, plant_topology, request):
    application = Running(tmp_path, control_server.url, control, WEIR_PIPELINE_EXECUTION=request.param)
    yield application
    application.end()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.faults
@pytest.mark.timeout(600)
def test_matches_are_those_of_an_undisturbed_run_though_application_and_node_are_killed(
    running, control_server, control, nodes, plant_topology, tmp_path
):
    begin = float(int(time.time()) - 3_600)
    chunks = chunks_of_events(7, begin)
    expected = undisturbed(tmp_path / "exact.yaml", chunks)
    assert len(expected) > 200
    remaining = iter(chunks)
    publishing = threading.Lock()

    with Client(control_server.url, producer="test") as client:

        def publish(count: int) -> None:
            with publishing:
                for _, chunk in zip(range(count), remaining, strict=False):
                    client.publish("telemetry", chunk)
                    # Paced as a producer is: more than one batch has to see them.
                    threading.Event().wait(0.1)

        running.start()
        publish(10)
        until(lambda: running.works_past(-1) and running.status()["batch"] is not None, START_SECONDS)
        publish(10)
        batch = running.kill(everything=False)
        publish(10)
        running.start()
        until(lambda: running.works_past(batch), START_SECONDS)
        background = threading.Thread(target=publish, args=(20,))
        background.start()
        nodes["n2"].kill()
        threading.Event().wait(0.7)
        batch = running.kill(everything=True)
        background.join()
        running.start()
        nodes["n2"].start()
        publish(CHUNKS)
        publish_end(client, begin)
        until(lambda: running.works_past(batch), START_SECONDS)

    assert_each_found_once(nodes, control, expected)
    # What finished batches have read is gone from the nodes, counted once though published or read twice.
    assert 0 < removed(nodes) <= CHUNKS * CHUNK_EVENTS + 1

    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(MAX_SECONDS) == 0
