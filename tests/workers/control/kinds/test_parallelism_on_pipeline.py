"""The joint law on a real pipeline: its loop sets tasks under load, and every match is found once."""

import threading
import time
from datetime import UTC, datetime

import pytest

from queues.nodes.agent import Agent
from queues.publishing.client import Client
from tests.waiting import until
from tests.workers.loops import PARALLELISM, ensured
from tests.workers.pipeline.pipeline_process import (
    CHUNK_EVENTS,
    CHUNK_SECONDS,
    START_SECONDS,
    Running,
    alerts,
    chunks_of_events,
    undisturbed,
)
from workers.control.engine import tick_due
from workers.models import LedgerEntry, Loop
from workers.snapshot.local import LocalPlant

# One event is found after the other, so that a task is soon busy.
DECLARATION = """
name: exact
queues: [telemetry]
sink: alert
lateness_seconds: 20
patterns:
  - name: abc
    pattern: SEQ(A; B+; C)
    key: source
    within_seconds: 6
"""
OPERATOR = "exact/abc"
CALM, TIMES, LOAD_SECONDS = 1, 6, 30  # chunks a second; how many times more; how long
CHUNKS = 600


@pytest.fixture
def running(tmp_path, control_server, control, plant_topology):
    application = Running(tmp_path, control_server.url, control, DECLARATION)
    yield application
    application.end()


class WorkReporter:
    """Agents that beat, a plant that is looked at and a loop that ticks, a second at a time."""

    def __init__(self, control, nodes):
        self.control, self.plant = control, LocalPlant(control)
        self.agents = [Agent(name, control) for name in nodes]
        self.seen = []

    def second(self):
        for agent in self.agents:
            agent.beat()
        snapshot = self.plant.observe()
        ensured(self.control, PARALLELISM, snapshot=snapshot)
        tick_due(self.plant, datetime.now(UTC), self.control, laws=("parallelism_joint",))
        row = snapshot.pipeline.applications.get("exact")
        if row and row.operators:
            self.seen.append(row.operators["abc"])
        return self.seen[-1] if self.seen else None

    def load(self):
        """Of a task, that was observed last: 1 is all of its time."""
        entry = LedgerEntry.objects.order_by("-pk").first()
        rows = (entry.observation or {}).get("operators") if entry else None
        row = (rows or {}).get(OPERATOR) or {}
        return (row.get("rate_per_second") or 0.0) * (row.get("service_seconds") or 0.0)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.timeout(390)
def test_the_loop_changes_tasks_under_load_between_two_batches_without_a_restart_a_lost_or_a_doubled_match(
    running, control_server, control, nodes, tmp_path
):
    begin = float(int(time.time()) - 7_200)
    chunks = chunks_of_events(5, begin, CHUNKS)
    published, reporter = 0, WorkReporter(control, nodes)
    with Client(control_server.url, producer="test") as client:

        def publish(count):
            nonlocal published
            for chunk in chunks[published : published + count]:
                client.publish("telemetry", chunk)
            published += count

        def second(count):
            publish(count)
            threading.Event().wait(1.0)
            return reporter.second()

        running.start()
        pid = running.process.pid
        publish(CALM)
        until(lambda: running.works_past(-1), START_SECONDS)
        until(lambda: second(CALM) and reporter.load() > 0, START_SECONDS, every_seconds=0.0)
        for _ in range(10):
            second(CALM)
        # How busy a stream makes its tasks depends on the machine: the range says how many there have to be.
        loop = Loop.objects.get(name="parallelism_joint/exact")
        parameters = {**loop.parameters, "maximum": 1}
        Loop.objects.filter(pk=loop.pk).update(parameters=parameters, guard={})
        until(lambda: second(CALM).parallelism == 1, 60, every_seconds=0.0)
        assert LedgerEntry.objects.filter(loop=loop, applied=True, error="").count() >= 1
        Loop.objects.filter(pk=loop.pk).update(parameters={**parameters, "minimum": 2, "maximum": 2})
        deadline = time.monotonic() + LOAD_SECONDS
        while time.monotonic() < deadline and reporter.seen[-1].parallelism == 1:
            second(CALM * TIMES)
        assert reporter.seen[-1].parallelism == 2, [each.reason for each in loop.entries.order_by("-pk")[:5]]
        for _ in range(5):
            second(CALM * TIMES)
        marker = {"id": "end", "time": begin + CHUNK_SECONDS * published + 60, "type": "N", "source": "s0"}
        client.publish("telemetry", [marker])
        expected = undisturbed(tmp_path / "exact.yaml", chunks[:published])

        def settled():
            reporter.second()
            return len(alerts(nodes)) >= len(expected) and not control.hlen("weir:pipeline:outbox:exact")

        until(settled, START_SECONDS, every_seconds=0.5)
    found = alerts(nodes)
    assert len(expected) > 50 and published * CHUNK_EVENTS > 2_000
    assert len(set(found.values())) == len(found), "a match was told twice"
    assert set(found.values()) == expected
    # The same process, the same run: nothing was started anew for it.
    assert running.process.pid == pid and running.process.poll() is None
    assert {each.parallelism for each in reporter.seen} >= {1, 2}
    by_loop = LedgerEntry.objects.filter(loop=loop, applied=True).exclude(action=None).order_by("pk")
    assert [each.action["tasks"][OPERATOR] for each in by_loop][:2] == [1, 2]
