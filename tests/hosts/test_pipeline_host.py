"""The pipeline on a host of its own, whose network and power fail one after another: each event has its
complex event once, and what is said of the pipeline is so.
"""

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.flow import Flow
from tests.hosts.whole_plant import NODES, PIPELINE, QUEUE, WholePlant, is_whole, whole_plant
from tests.waiting import until
from workers.pipeline.declaration.controls import Controls

logger = logging.getLogger(__name__)
pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.alone, pytest.mark.timeout(900)]
CLICKS, APPLICATION, VISIT = "clicks", "visits", "visit"
SUBJECT = "pipeline/main"
DECLARATION = f"""
name: {APPLICATION}
queues: [{CLICKS}]
sink: {QUEUE}
patterns:
  - name: {VISIT}
    pattern: SEQ(any)
    define:
      any: 'type != "none"'
    key: key
    within_seconds: 1
    emits: {VISIT}
"""
STARTED_SECONDS, AGAIN_SECONDS = 240.0, 120.0  # on a busy machine; what it took is in the log


def is_at_work(snapshot: dict[str, Any]) -> bool:
    """The pipeline is heard, and so is its application."""
    row = snapshot["pipeline"]
    application = row["applications"].get(APPLICATION)
    return is_whole(snapshot) and row["state"] == "running" and bool(application)


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("hosts")
    with whole_plant(folder) as plant:
        plant.act(f"queues/{CLICKS}/create", kind="pipeline")
        plant.act("applications", text=DECLARATION)
        plant.begin_part(PIPELINE)
        plant.until(is_at_work, STARTED_SECONDS, "the pipeline is at work")
        yield plant


@pytest.fixture
def flow(plant, request):
    """Around each test; some of its events have become complex ones before it begins."""
    plant.until(is_at_work, AGAIN_SECONDS, "the pipeline is at work")
    with Flow(plant, request.node.name, CLICKS, VISIT) as flow:
        until(lambda: len(flow.handled()) > 100, AGAIN_SECONDS, 0.5)
        yield flow


def goes_on(plant: WholePlant, flow: Flow, after: str) -> None:
    began, before = time.monotonic(), len(flow.acknowledged)
    plant.until(is_at_work, AGAIN_SECONDS, f"the pipeline is at work after {after}")
    until(lambda: len(flow.handled()) > before, AGAIN_SECONDS, 0.5)
    logger.warning("%s: what had waited was worked after %.1f s", after, time.monotonic() - began)


def words(flow: Flow) -> set[str]:
    return flow.said[SUBJECT]


def test_a_pipeline_that_is_cut_off_is_said_to_be_silent_and_loses_and_repeats_nothing(plant, flow):
    with plant.net.disturbed(PIPELINE, cut=True):
        seconds, _ = plant.until(
            lambda snapshot: snapshot["states"][SUBJECT]["word"] == "Not reporting", 60, "the pipeline is not reporting"
        )
        logger.warning("the pipeline is said not to report after %.1f s", seconds)
        plant.assert_loops_tick()
        assert plant.page_answers()
    goes_on(plant, flow, "the pipeline was cut off")
    flow.end()


def test_a_pipeline_that_is_cut_off_from_one_node_waits_for_it(plant, flow):
    """For `hold_seconds`: what is read of it later than that is late, and counted as that."""
    with plant.net.disturbed(PIPELINE, (NODES[0],), cut=True):
        cut_at = time.monotonic()
        until(lambda: time.monotonic() - cut_at > Controls().hold_seconds / 2, 20, 0.5)
    goes_on(plant, flow, f"the pipeline had no way to {NODES[0]}")
    flow.end()


@pytest.mark.parametrize("what", [{"delay_seconds": 0.1}, {"loss": 0.05}], ids=["slow", "lossy"])
def test_a_pipeline_behind_a_slow_or_lossy_network_works_on(plant, flow, what):
    with plant.net.disturbed(PIPELINE, **what):
        before = len(flow.acknowledged)
        until(lambda: len(flow.handled()) > before + 500, AGAIN_SECONDS, 0.5)
        assert not {"Not reporting"} & words(flow)
    flow.end()


def test_a_pipeline_whose_host_loses_its_power_goes_on_where_it_was(plant, flow):
    plant.net.kill_host(PIPELINE)
    plant.until(
        lambda snapshot: snapshot["states"][SUBJECT]["word"] == "Not reporting", 60, "the pipeline is not reporting"
    )
    plant.begin_part(PIPELINE)
    goes_on(plant, flow, "the pipeline's host had no power")
    flow.end()
