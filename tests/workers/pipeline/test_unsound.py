"""The real process on events as they come: clocks that differ, attributes of the wrong type, and criteria
that change what passes while it runs.
"""

import time

import pytest

from queues.publishing.client import Client
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import Segment
from tests.waiting import until
from tests.workers.pipeline.pipeline_process import START_SECONDS, Running, alerts
from workers.pipeline.tiers.state import StateStore

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]
DECLARATION = """
name: exact
queues: [telemetry]
sink: alert
lateness_seconds: 3
attributes: {level: number}
criteria: {slow: 5}
monitor: [{criterion: slow, column: value, quantile: 0.9, type: response}]
rules: [{name: slow, keep: "value > :slow"}]
patterns: [{name: seen, pattern: SEQ(response), key: source, within_seconds: 1}]
"""


@pytest.fixture
def running(tmp_path, control_server, control, plant_topology):
    application = Running(tmp_path, control_server.url, control)
    (tmp_path / "exact.yaml").write_text(DECLARATION)
    application.start()
    yield application
    application.end()


@pytest.fixture
def publish(control_server):
    """Publishes responses by id: of this value, so many seconds from now, of this source."""
    with Client(control_server.url, "test") as client:

        def publishing(*names: str, value: float, seconds: float = 0.0, source: str = "s", **more: object) -> None:
            given = {"type": "response", "value": value, "source": source, "time": time.time() + seconds, **more}
            client.publish("telemetry", [{"id": name, **given} for name in names])

        yield publishing


def seen(nodes) -> set[str]:
    """Ids of the events that have passed and matched."""
    return {name for _, _, events in alerts(nodes).values() for name in events}


def letters(nodes) -> dict[str, str]:
    """Id → cause of every dead letter."""
    found = [DeadLetters(Segment(server.client(), "telemetry")).read() for server in nodes.values()]
    return {row["id"]: each.error for letters in found for each in letters for row in each.batch.to_pylist()}


def test_what_can_not_be_worked_is_reported_and_what_is_late_is_kept_while_the_others_go_on(
    running, publish, control, nodes
):
    publish("first", value=9)
    publish("behind", value=9, seconds=-1.5, source="slow clock")
    publish("wrong", value=9, attributes={"level": "high"})
    publish("ahead", value=9, seconds=3_600, source="fast clock")
    until(lambda: "first" in seen(nodes) and "behind" in seen(nodes), START_SECONDS)
    until(lambda: set(letters(nodes)) == {"wrong", "ahead"})
    assert letters(nodes)["wrong"] == 'attribute level must be a number, not "high"'
    assert "clock" in letters(nodes)["ahead"]
    # Event time has gone on with the others: who is further behind than the lateness is counted and kept.
    publish("late", value=9, seconds=-30, source="stopped clock")
    publish("last", value=9)
    until(lambda: "last" in seen(nodes))
    until(lambda: running.status()["late_events"] == 1)
    kept = [row["id"] for rows in StateStore(control, "exact").list_late_events(10) for row in rows.to_pylist()]
    assert kept == ["late"]
    assert seen(nodes) == {"first", "behind", "last"}
