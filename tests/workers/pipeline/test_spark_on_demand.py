"""The real process without Spark: its results stay exact while Spark starts and ends, and through kills."""

import signal
import time

import psutil
import pytest

from queues.publishing.client import Client
from tests.waiting import MAX_SECONDS, until
from tests.workers.pipeline.pipeline_process import (
    DECLARATION,
    START_SECONDS,
    Running,
    assert_each_found_once,
    chunks_of_events,
    publish_end,
    undisturbed,
)
from workers.pipeline.declaration.controls import steer_named
from workers.pipeline.declaration.declared import Declarations, DeclarationText

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]
# The process as a program, with a quiet time that a test can wait for. After it, the usual program follows.
SHORT_QUIET = """
import sys
from workers.pipeline.runtime import application
application.QUIET_SECONDS = 3.0
sys.exit(application.main([]))
"""


class OnDemand(Running):
    """A process that starts Spark on demand."""

    def __init__(self, *given, **environment):
        super().__init__(*given, WEIR_SPARK="on-demand", **environment)

    def application(self) -> dict:
        return self.status().get("applications", {}).get("exact", {})

    def runs_in(self, place: str) -> bool:
        assert self.process.poll() is None, self.log[-3000:]
        application = self.application()
        return application.get("state") == "running" and application.get("place") == place

    def has_java(self) -> bool:
        return any("java" in child.name() for child in psutil.Process(self.process.pid).children(recursive=True))


@pytest.fixture
def running(tmp_path, control_server, control, plant_topology):
    application = OnDemand(tmp_path, control_server.url, control)
    yield application
    application.end()


def ask_for_tasks(control, tasks: int | None) -> None:
    steer_named(control, "exact", "tasks", {"abc": tasks}, {})


@pytest.mark.faults
def test_matches_are_exact_though_the_process_is_killed_before_during_and_after_the_start_of_spark(
    running, control_server, control, nodes, tmp_path
):
    begin = float(int(time.time()) - 3_600)
    chunks = chunks_of_events(21, begin)
    expected = undisturbed(tmp_path / "exact.yaml", chunks)
    remaining = iter(chunks)

    with Client(control_server.url, producer="test") as client:

        def publish(count: int) -> None:
            for _, chunk in zip(range(count), remaining, strict=False):
                client.publish("telemetry", chunk)
                time.sleep(0.05)

        def restart() -> None:
            batch = running.kill(everything=True)
            publish(5)
            running.start()
            until(lambda: running.works_past(batch), START_SECONDS)

        running.start()
        publish(10)
        until(lambda: running.runs_in("process") and running.works_past(-1), START_SECONDS)
        assert "Spark starts above 2,000 events/s" in running.application()["place_reason"]
        assert not running.has_java()
        restart()
        assert running.runs_in("process") and not running.has_java()

        ask_for_tasks(control, 2)
        publish(5)  # a dispatch has the controls of its time
        until(running.has_java, START_SECONDS)
        restart()

        until(lambda: running.runs_in("spark"), START_SECONDS)
        assert running.application()["place_reason"] == "2 tasks are set for an operator"
        batch = running.status()["batch"]
        publish(10)
        until(lambda: running.works_past(batch), START_SECONDS)
        restart()
        publish(len(chunks))
        publish_end(client, begin)

    assert_each_found_once(nodes, control, expected)
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(MAX_SECONDS) == 0


def test_an_application_continues_on_spark_and_without_it_again_as_the_same_process(
    running, control_server, control, nodes, tmp_path
):
    begin = float(int(time.time()) - 3_600)
    chunks = chunks_of_events(22, begin, 30)
    running.process = running.start_program("log", "-c", SHORT_QUIET)
    states = set()

    def is_in(place: str) -> bool:
        states.add(running.status().get("state"))
        return running.runs_in(place)

    with Client(control_server.url, producer="test") as client:
        for chunk in chunks[:10]:
            client.publish("telemetry", chunk)
        until(lambda: is_in("process"), START_SECONDS)
        ask_for_tasks(control, 2)
        until(lambda: is_in("spark"), START_SECONDS)
        for chunk in chunks[10:20]:
            client.publish("telemetry", chunk)
        ask_for_tasks(control, 1)
        until(lambda: is_in("process") and not running.has_java(), START_SECONDS)
        for chunk in chunks[20:]:
            client.publish("telemetry", chunk)
        publish_end(client, begin)

    assert_each_found_once(nodes, control, undisturbed(tmp_path / "exact.yaml", chunks))
    assert "failed" not in states
    assert running.status()["error"] is None
    assert running.application()["restarts"]["tries"] == 0


def test_an_application_that_only_spark_can_run_starts_it_at_once(running, tmp_path):
    (tmp_path / "exact.yaml").write_text(DECLARATION + "engine: spark\n")
    running.start()
    until(lambda: running.runs_in("spark"), START_SECONDS)
    assert "the declaration sets engine: spark" in running.application()["place_reason"]


def test_a_version_that_only_spark_can_check_is_rejected_and_the_earlier_version_continues(running, control):
    declarations = Declarations(control)
    running.start()
    until(lambda: running.runs_in("process"), START_SECONDS)
    wrong = DECLARATION.replace("discard: \"type = 'N'\"", 'discard: "type + 1"')
    declarations.want(DeclarationText("exact", 1, wrong))
    until(lambda: declarations.load_running()["exact"].refused, START_SECONDS)
    assert "rules[0]" in declarations.load_running()["exact"].refused
    assert declarations.load_running()["exact"].version == 0
    until(lambda: running.runs_in("spark"), START_SECONDS)
