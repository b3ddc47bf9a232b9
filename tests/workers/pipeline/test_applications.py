"""Several applications in one real process: one feeds another, and versions change between two batches."""

import json
from dataclasses import replace

import pytest

from queues import keys
from queues.events import block
from queues.publishing.client import Client
from queues.segments.segment import Segment
from queues.topology import QueueSpec
from tests.waiting import until
from tests.workers.pipeline.pipeline_process import START_SECONDS, Running
from workers.pipeline.declaration.declared import Declarations, DeclarationText

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
FIRST = """
name: exact
queues: [telemetry]
sink: middle
lateness_seconds: 0.2
key: source
patterns: [{name: pair, pattern: SEQ(A; B), within_seconds: 1000}]
"""
SECOND = """
name: second
queues: [middle]
sink: alert
lateness_seconds: 0.2
key: source
patterns: [{name: pairs, pattern: SEQ(pair; pair), within_seconds: 1000}]
"""


@pytest.fixture
def running(tmp_path, control_server, control, plant_topology):
    points = plant_topology.queues["telemetry"].points
    queues = {**plant_topology.queues, "middle": QueueSpec("middle", "pipeline", points)}
    control.set(keys.TOPOLOGY, replace(plant_topology, queues=queues).to_json())
    application = Running(tmp_path, control_server.url, control)
    (tmp_path / "exact.yaml").write_text(FIRST)
    yield application
    application.end()


def emitted(nodes) -> list[tuple[str, str]]:
    """(type, source) of every complex event in queue alert."""
    found = []
    for server in nodes.values():
        for _, block_id, data, _ in Segment(server.client(), "alert").read("0-0", "+"):
            rows = block.decode(block_id, data).batch.to_pylist()
            found += [(row["type"], row["source"]) for row in rows]
    return sorted(found)


def state_of(running: Running, name: str) -> str | None:
    return running.status().get("applications", {}).get(name, {}).get("state")


def test_one_tier_feeds_another_and_versions_take_over_where_the_one_before_is(running, control_server, control, nodes):
    declarations = Declarations(control)
    running.start()
    until(lambda: state_of(running, "exact") == "running", START_SECONDS)
    declarations.want(DeclarationText("second", 1, SECOND))
    until(lambda: state_of(running, "second") == "running", START_SECONDS)
    with Client(control_server.url, "test") as client:

        def publish(types: str, source: str) -> None:
            for each in types:
                client.publish("telemetry", [{"type": each, "source": source}])

        publish("ABAB", "s1")
        publish("AB", "s2")
        until(lambda: emitted(nodes) == [("pairs", "s1")], START_SECONDS)

        wrong = SECOND.replace("pairs", "many").replace("rules", "").replace("key: source", "key: nobody")
        declarations.want(DeclarationText("second", 2, wrong))
        until(lambda: "nobody" in (declarations.load_running()["second"].refused or ""), START_SECONDS)
        assert declarations.load_running()["second"].version == 1

        # The pattern stays as it is: what it has begun goes on in the next version.
        better = SECOND + "  # nothing else changes\n"
        declarations.want(DeclarationText("second", 3, better))
        until(lambda: declarations.load_running()["second"].version == 3, START_SECONDS)
        publish("AB", "s2")
        until(lambda: emitted(nodes) == [("pairs", "s1"), ("pairs", "s2")], START_SECONDS)

        control.hdel(keys.PIPELINE_WANTED, "second")
        until(lambda: "second" not in declarations.load_running(), START_SECONDS)
        publish("AB", "s3")
        assert state_of(running, "exact") == "running"
    assert json.loads(control.get("weir:pipeline"))["error"] is None
