"""A whole plant over hosts, whose network, clocks and hosts fail one after another: what is said of it is so,
every event has its effect once, and it is whole again by itself.
"""

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.flow import Flow
from tests.hosts.whole_plant import QUEUE, WholePlant, is_whole, whole_plant
from tests.waiting import until

logger = logging.getLogger(__name__)
pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.alone, pytest.mark.timeout(900)]
AGAIN_SECONDS = 60.0  # on a busy machine; what it took is in the log
A_MINUTE = 60.0


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("hosts")
    with whole_plant(folder) as plant:
        yield plant


@pytest.fixture
def flow(plant, request):
    """Around each test; the plant is whole before it."""
    plant.until(is_whole, AGAIN_SECONDS, "the plant is whole")
    with Flow(plant, request.node.name) as flow:
        until(lambda: len(flow.acknowledged) > 100, 30)
        yield flow


def state_of(snapshot: dict[str, Any], about: str) -> dict[str, Any]:
    return snapshot["states"].get(about, {"word": "", "finding": "", "severity": ""})


def node_is(name: str, state: str) -> Any:
    return lambda snapshot: snapshot["nodes"][name]["state"] == state


def again(plant: WholePlant, what: str) -> None:
    mended_at = time.time()  # what was whole before it broke says nothing

    def whole_since(snapshot: dict[str, Any]) -> bool:
        return snapshot["at"] > mended_at and is_whole(snapshot)

    seconds, _ = plant.until(whole_since, AGAIN_SECONDS, f"whole after {what}")
    logger.warning("%s: whole again after %.1f s", what, seconds)


def test_a_partitioned_node_is_offline_its_events_go_elsewhere_and_it_is_used_again(plant, flow):
    with plant.net.disturbed("n3", cut=True):
        seconds, _ = plant.until(node_is("n3", "OFFLINE"), 30, "n3 is offline")
        logger.warning("n3 is said to be offline after %.1f s", seconds)
        emptied, _ = plant.until(
            lambda snapshot: flow.topologies[max(flow.topologies)].queues[QUEUE].points.get("n3", 0) == 0,
            60,
            "its points are restored on others",
        )
        logger.warning("its points are on others after %.1f s more", emptied)
        plant.assert_loops_tick()
        assert {"Offline"} & flow.said["node/n3"]
        assert not {"Offline"} & (flow.said["node/n1"] | flow.said["node/n2"])
        assert flow.rerouted > 0
    again(plant, "partition of n3")
    seconds, _ = plant.until(
        lambda snapshot: flow.topologies[max(flow.topologies)].queues[QUEUE].points.get("n3", 0) > 0,
        120,
        "n3 has points again",
    )
    logger.warning("n3 has points again after %.1f s more", seconds)
    flow.end()


@pytest.mark.parametrize("what", [{"delay_seconds": 0.1}, {"loss": 0.05}], ids=["slow", "lossy"])
def test_a_slow_or_lossy_node_is_used_and_nobody_calls_it_offline(plant, flow, what):
    with plant.net.disturbed("n2", **what):
        began = time.monotonic()
        while time.monotonic() - began < 20:
            plant.assert_loops_tick()
    assert not {"Offline"} & flow.said["node/n2"], flow.said
    flow.end()


@pytest.mark.parametrize("ahead_seconds", [600, -600])
@pytest.mark.parametrize(("host", "subject"), [("n2", "node/n2"), ("w2", "host/jobs@w2")])
def test_a_host_whose_clock_is_off_is_used_and_named_and_the_loops_tick_on(plant, flow, host, subject, ahead_seconds):
    if not plant.net.has_clocks:
        pytest.skip("needs a C compiler (cc) for clocks of its own")
    plant.net.set_clock(host, ahead_seconds)
    try:
        side = "ahead of" if ahead_seconds > 0 else "behind"
        plant.until(
            lambda snapshot: side in state_of(snapshot, subject)["finding"], 30, f"the clock of {host} is named"
        )
        plant.assert_loops_tick()
        assert not {"Offline"} & flow.said["node/n2"]
    finally:
        plant.net.set_clock(host, 0)
    plant.assert_loops_tick()
    flow.end()


def test_without_the_control_server_for_a_minute_events_are_taken_and_all_goes_on_afterwards(plant, flow):
    before = len(flow.acknowledged)
    with plant.net.disturbed("control", cut=True):
        began = time.monotonic()
        until(lambda: time.monotonic() - began > A_MINUTE, A_MINUTE + 10, 1.0)
        during = len(flow.acknowledged) - before
        answers = plant.page_answers()
    again(plant, "a minute without the control server")
    plant.assert_loops_tick()
    logger.warning("without the control server: %d events taken, login page answers: %s", during, answers)
    assert during > 0 and answers
    flow.end()


def test_a_split_between_console_and_workers_stops_neither(plant, flow):
    with plant.net.disturbed("console", ("w1", "w2"), cut=True):
        plant.assert_loops_tick()
        assert plant.page_answers()
        plant.until(is_whole, 30, "both worker hosts report")
    assert not {"Not reporting"} & (flow.said["host/jobs@w1"] | flow.said["host/jobs@w2"])
    flow.end()


def test_a_worker_host_joins_and_leaves_and_nothing_is_started_again(plant, flow):
    pids = {name: process.pid for name, process in plant.processes.items()}
    plant.join("jobs", "w3")
    seconds, _ = plant.until(lambda snapshot: "jobs@w3" in snapshot["hosts"], 60, "w3 reports")
    logger.warning("w3 reports after %.1f s", seconds)
    plant.end_part("jobs-w3")
    seconds, _ = plant.until(lambda snapshot: "jobs@w3" not in snapshot["hosts"], 60, "w3 has left")
    logger.warning("w3 has left after %.1f s", seconds)
    assert not {"Not reporting"} & flow.said["host/jobs@w3"]
    plant.assert_loops_tick()
    assert all(plant.processes[name].pid == pid for name, pid in pids.items())
    assert all(process.poll() is None for process in plant.processes.values())
    flow.end()


def test_a_worker_host_that_loses_its_power_costs_no_event(plant, flow):
    plant.net.kill_host("w2")
    plant.until(lambda s: state_of(s, "host/jobs@w2")["word"] == "Not reporting", 60, "w2 is not reporting")
    plant.assert_loops_tick()
    for role in ("control", "jobs"):
        plant.join(role, "w2")
    again(plant, "power of w2")
    flow.end()
