"""The pipeline's process on real servers, as the supervisor starts it; the events it is given, and what it
has to find in them.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from bench.plant.running_plant import start_program
from queues.events import block
from queues.publishing.client import Client
from queues.segments.segment import Segment
from tests.waiting import MAX_SECONDS, until
from tests.workers.pipeline.matching.patterns import match_all
from workers.pipeline.declaration.declaration import read_application
from workers.pipeline.patterns.graph import compute_key_groups

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
    def __init__(self, folder, control_url, control, declaration=DECLARATION, **environment):
        self._folder, self._control = folder, control
        self._environment = {
            **os.environ,
            "REDIS_URL": control_url,
            "WEIR_DATA": str(folder / "data"),
            "WEIR_PIPELINE_APPLICATION": str(folder / "exact.yaml"),
            "WEIR_PIPELINE_TRIGGER_SECONDS": "0.5",
            "WEIR_SPARK": "always",
            **environment,
        }
        (folder / "exact.yaml").write_text(declaration)
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        self.process = self.start_process("log")

    def start_process(self, log_name: str, *arguments: str) -> subprocess.Popen:
        """Start a process of the pipeline, which writes this log."""
        return self.start_program(log_name, "-m", "workers.pipeline.runtime.application", *arguments)

    def start_program(self, log_name: str, *arguments: str) -> subprocess.Popen:
        """Start Python with these arguments, which writes this log."""
        return start_program([sys.executable, *arguments], self._environment, self._folder / log_name)

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()

    def status(self) -> dict:
        return json.loads(self._control.get("weir:pipeline") or b"{}")

    def works_past(self, batch: int) -> bool:
        assert self.process.poll() is None, self.log[-3000:]
        status = self.status()
        return status.get("state") == "running" and (status.get("batch") or 0) > batch

    def kill(self, everything: bool) -> int:
        """kill -9; returns the last batch it told of."""
        batch = self.status().get("batch") or 0
        if everything:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait(MAX_SECONDS)
        return batch

    def end(self) -> None:
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            self.process.wait(MAX_SECONDS)


def chunks_of_events(seed: int, begin: float, count: int = CHUNKS) -> list[list[dict]]:
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
        for chunk in range(count)
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
        for key, taken in match_all(pattern, keyed(batch, pattern.key)).list_emitted()
    }


def keyed(batch: pa.RecordBatch, key: str) -> pa.RecordBatch:
    """Rows as a matcher takes them."""
    keys = batch.column(key)
    group = pa.array(compute_key_groups(keys), pa.int32())
    return batch.append_column("match_key", keys).append_column("group", group)


def alerts(nodes) -> dict[str, tuple]:
    """Alert id → what it says, of everything that was published to queue alert."""
    found = {}
    for server in nodes.values():
        for _, block_id, data, _ in Segment(server.client(), "alert").read("0-0", "+"):
            for event in block.decode(block_id, data).batch.to_pylist():
                events = json.loads(event["attributes"])["events"]
                said = (event["key"], event["source"], tuple(each["id"] for each in events))
                assert found.setdefault(event["id"], said) == said, "one id, two meanings"
    return found


@contextmanager
def published(url: str, next_events: Callable[[float, int], list[dict]]) -> Iterator[list[int]]:
    """Publishes what is next after so many seconds and events, five times a second; gives the count of events."""
    ended, count = threading.Event(), [0]

    def publish() -> None:
        began = time.monotonic()
        with Client(url, producer="steady") as client:
            while not ended.wait(0.2):
                following = next_events(time.monotonic() - began, count[0])
                client.publish("telemetry", following)
                count[0] += len(following)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield count
    finally:
        ended.set()
        thread.join()


def publish_end(client: Client, begin: float) -> None:
    """An event that no pattern takes, of a time by which all others are due."""
    time_of_end = begin + CHUNK_SECONDS * CHUNKS + 60
    client.publish("telemetry", [{"id": "end", "time": time_of_end, "type": "N", "source": "s0"}])


def assert_each_found_once(nodes, control, expected: set[tuple]) -> None:
    """Every match is published, once, when the outbox is empty."""

    def are_published() -> bool:
        return len(alerts(nodes)) >= len(expected) and not control.hlen("weir:pipeline:outbox:exact")

    with suppress(AssertionError):  # the missing matches are more useful in the message
        until(are_published, START_SECONDS, every_seconds=0.2)
    found = alerts(nodes)
    missing = expected - set(found.values())
    assert not missing, f"{len(missing)} of {len(expected)} are missing, such as {sorted(missing)[:5]}"
    assert set(found.values()) == expected
    assert len(found) == len(expected), "a match was emitted twice"


def removed(nodes) -> int:
    counters = [Segment(server.client(), "telemetry").get_counters() for server in nodes.values()]
    return sum(each["removed_events"] for each in counters)
