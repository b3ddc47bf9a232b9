"""Real events at twice what a real application can do: what each way of dropping leaves of the matches."""

import json
import logging
import math
import time

import pytest

from tests.shared_data import DATA
from tests.waiting import until
from tests.workers.control import overload
from tests.workers.control.overload import Overload, SurplusStream, Trace, outcome, told
from tests.workers.loops import PIPELINE, ensured
from tests.workers.pipeline.test_exactness import START_SECONDS, Running
from workers.models import Loop

logger = logging.getLogger(__name__)
TRACE = DATA / "events" / "google2011_job_events_parts_000_039.csv.gz"
BOUND_SECONDS, OVERLOAD_SECONDS = 20.0, 50.0
MORE_THAN_ENOUGH = 18_000.0  # events/s
BURST_SECONDS = 8.0
WARM, MAX_ROUNDS = 1.1, 4
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_200), pytest.mark.django_db(transaction=True)]
needs_trace = pytest.mark.skipif(not TRACE.exists(), reason=f"the trace is not here: {TRACE}")


@pytest.fixture
def plant(tmp_path, control_server, control, nodes, plant_topology, request):
    declaration, stream = request.param()
    running = Running(tmp_path, control_server.url, control)
    (tmp_path / "exact.yaml").write_text(declaration)
    made = Overload(control_server.url, control, nodes, stream, BOUND_SECONDS)
    running.start()
    until(lambda: running.works_past(-1), START_SECONDS)
    made.plant.steer_pipeline(
        "exact", {"parallelism": 1, "combine_events_per_batch": 12_000, "admit_events_per_batch": 24_000}
    )
    ensured(control, ["ladder"], plant_topology)
    ensured(control, PIPELINE)
    Loop.objects.filter(law="ladder").update(mode=Loop.Mode.AUTO)
    yield made
    made.close()
    running.end()


def capacity_of(plant: Overload) -> float:
    """Return the events/s that it processes without dropping any: a burst, divided by the time until it is processed.

    Bursts are repeated until the rate stops rising, because a cold process is much slower.
    """
    Loop.objects.filter(law="shedding").update(mode=Loop.Mode.HOLD)
    plant.warm_up(300)
    capacity, before = 0.0, -math.inf
    for _ in range(MAX_ROUNDS):
        capacity, before = _measure_capacity(plant), capacity
        if capacity < WARM * before:
            break
    Loop.objects.filter(law="shedding").update(mode=Loop.Mode.AUTO)
    return max(capacity, before)


def _measure_capacity(plant: Overload) -> float:
    began = time.monotonic()
    phase = plant.publish(MORE_THAN_ENOUGH, BURST_SECONDS)
    plant.drain(phase, 120)
    seconds = time.monotonic() - began
    assert seconds > 1.5 * BURST_SECONDS, f"{MORE_THAN_ENOUGH:,.0f} events/s are not more than enough"
    return sum(batch.num_rows for batch in phase.batches) / seconds


@needs_trace
@pytest.mark.parametrize("plant", [lambda: (overload.DECLARATION, Trace.read(TRACE))], indirect=True)
def test_at_twice_the_capacity_the_global_table_keeps_most_matches_and_the_bound(plant, nodes):
    capacity, outcomes = capacity_of(plant), {}
    for name in ("global", "local", "random"):
        plant.baseline = name == "random"
        plant.steer_law(perspective="local" if name == "local" else "global")
        phase = plant.publish(2 * capacity, OVERLOAD_SECONDS)
        plant.drain(phase)
        outcomes[name] = outcome(phase, nodes)
    figures = told(outcomes, capacity)
    logger.warning("%s", figures)  # shown with -o log_cli=true
    logger.info("%s", json.dumps(plant.log))
    recall = {name: each.recall for name, each in outcomes.items()}
    assert recall["global"] >= recall["local"], figures
    assert recall["global"] >= recall["random"] + 0.15, figures
    assert outcomes["global"].share_within(BOUND_SECONDS) >= 0.99, figures


SURPLUS_STREAM = SurplusStream(copies=4)


@pytest.mark.parametrize("plant", [lambda: (SURPLUS_STREAM.declaration, SURPLUS_STREAM)], indirect=True)
def test_at_twice_the_capacity_surplus_is_dropped_first_as_in_the_lab(plant, nodes):
    capacity = capacity_of(plant)
    plant.steer_law()
    phase = plant.publish(2 * capacity, OVERLOAD_SECONDS)
    plant.drain(phase)
    shipped, rows = outcome(phase, nodes), overload.rows_to_match(phase.batches)
    # The other tables are in force all the time, at 2 s of work a second.
    patterns = SURPLUS_STREAM.patterns
    work = len(patterns) / 2 * (overload.SURPLUS + 3)
    rates = {kind: 2 * (overload.SURPLUS if kind == "A" else 1) / work for kind in "ABCD"}
    tables = {"lab": overload.lab_table(rates, 1.0, 1.0, patterns), "random": overload.random_table(0.5, patterns)}
    whole = sum(phase.expected.values())
    recall = {name: overload.kept_by(table, rows, patterns) / whole for name, table in tables.items()}
    figures = f"{recall}, {told({'shipped': shipped}, capacity)}"
    logger.warning("%s", figures)
    logger.info("%s", json.dumps(plant.log))
    assert shipped.recall >= 0.9 * recall["lab"] and shipped.recall >= 2 * recall["random"], figures
    assert shipped.share_within(BOUND_SECONDS) >= 0.99, figures
