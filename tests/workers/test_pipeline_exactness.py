"""The real application on real servers: killed twice, a node killed under it, the undisturbed result."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
import redis

from queues import block
from queues.client import Client
from queues.segment import Segment
from tests.waiting import until
from workers.pipeline.declaration import read_application
from workers.pipeline.graph import key_groups
from workers.pipeline.matcher import match_all

ROOT = Path(__file__).resolve().parents[2]
DECLARATION = """
name: exact
queues: [telemetry]
sink: alert
lateness_seconds: 20
rules:
  - name: noise
    discard: "type = 'N'"
patterns:
  - name: abc
    pattern: SEQ(A; B; C)
    key: source
    within_seconds: 10
  - name: high-then-a
    pattern: SEQ(high; A)
    define: {high: 'value > 0.8 and type != "A"', A: 'type == "A"'}
    key: key
    within_seconds: 5
"""
START_SECONDS = 150  # of a Spark on a machine that does much else
CHUNKS, CHUNK_EVENTS, CHUNK_SECONDS = 60, 100, 4.0


class Running:
    """The application's process, as the supervisor starts it."""

    def __init__(self, folder: Path, control_url: str, control: redis.Redis) -> None:
        self._folder, self._control = folder, control
        self._environment = {
            **os.environ,
            "REDIS_URL": control_url,
            "WEIR_DATA": str(folder / "data"),
            "WEIR_PIPELINE_APPLICATION": str(folder / "exact.yaml"),
            "WEIR_PIPELINE_TRIGGER_SECONDS": "0.5",
        }
        (folder / "exact.yaml").write_text(DECLARATION)
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "workers.pipeline.application"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def status(self) -> dict:
        return json.loads(self._control.get("weir:pipeline") or b"{}")

    def works_past(self, batch: int) -> bool:
        assert self.process.poll() is None, (self._folder / "log").read_text()[-3000:]
        status = self.status()
        return status.get("state") == "running" and (status.get("batch") or 0) > batch

    def kill(self, everything: bool) -> int:
        """kill -9; returns the last batch it told of."""
        batch = self.status()["batch"]
        if everything:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait(20)
        return batch

    def end(self) -> None:
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            self.process.wait(20)


@pytest.fixture
def running(tmp_path, control_server, control, plant_topology):
    application = Running(tmp_path, control_server.url, control)
    yield application
    application.end()


def chunks_of_events(seed: int, begin: float) -> list[list[dict]]:
    """Events in rough time order: chunk after chunk, shuffled within."""
    source = random.Random(seed)
    return [
        [
            {
                "id": f"{chunk}-{place}",
                "time": begin + CHUNK_SECONDS * (chunk + source.random()),
                "type": source.choice("ABCN"),
                "source": f"s{source.randrange(20)}",
                "key": f"k{source.randrange(50)}",
                "value": source.random(),
            }
            for place in range(CHUNK_EVENTS)
        ]
        for chunk in range(CHUNKS)
    ]


def undisturbed(declaration: Path, chunks: list[list[dict]]) -> set[tuple]:
    """What a single look at all events finds."""
    batch = block.from_events([event for chunk in chunks for event in chunk if event["type"] != "N"], 0)
    batch = batch.set_column(1, "time", batch.column("time").cast(pa.int64())).sort_by(
        [("time", "ascending"), ("id", "ascending")]
    )
    return {
        (pattern.name, key, tuple(event[1] for event in taken))
        for pattern in read_application(declaration).patterns
        for key, taken in match_all(pattern, keyed(batch, pattern.key)).told()
    }


def keyed(batch: pa.RecordBatch, key: str) -> pa.RecordBatch:
    """Rows as a matcher takes them."""
    keys = batch.column(key)
    group = pa.array(key_groups(keys), pa.int32())
    return batch.append_column("match_key", keys).append_column("group", group)


def alerts(nodes) -> dict[str, tuple]:
    """Alert id → what it says, of everything that was published to queue alert."""
    found = {}
    for server in nodes.values():
        for _, block_id, data in Segment(server.client(), "alert").read("0-0", "+"):
            for event in block.decode(block_id, data).batch.to_pylist():
                events = json.loads(event["attributes"])["events"]
                said = (event["key"], event["source"], tuple(each["id"] for each in events))
                assert found.setdefault(event["id"], said) == said, "one id, two meanings"
    return found


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
        marker = {"id": "end", "time": begin + CHUNK_SECONDS * CHUNKS + 60, "type": "N", "source": "s0"}
        client.publish("telemetry", [marker])
        until(lambda: running.works_past(batch), START_SECONDS)

    def settled() -> bool:
        return len(alerts(nodes)) >= len(expected) and not control.hlen("weir:pipeline:outbox:exact")

    until(settled, START_SECONDS, every_seconds=0.2)
    found = alerts(nodes)
    assert len(set(found.values())) == len(found), "a match was told twice"
    assert set(found.values()) == expected
    published = [Segment(server.client(), "telemetry").counters() for server in nodes.values()]
    # What finished batches have read is gone from the nodes, counted once though published or read twice.
    assert 0 < sum(each["removed_events"] for each in published) <= CHUNKS * CHUNK_EVENTS + 1

    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(15) == 0
