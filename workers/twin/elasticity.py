"""The shipped run of the scenario `elasticity`: the joint law sets the tasks of an application with four operators.

Each second of the model gives one batch. An operator's inputs are the events offered to it. The result that a batch
reads was published when its events arrived, so the age of the result is the wait in the chain.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.errors import BadInput
from controllers.baselines.parallelism import MeasuredInterval
from controllers.parallelism.joint_law import LAW
from controllers.simulation import elasticity
from controllers.simulation.elastic_chain import KINDS, TIMEOUT_SECONDS, Chain
from controllers.simulation.scenario import Floats, ScenarioOutcome
from queues.points import TOTAL
from queues.topology import NodeSpec, QueueSpec, Topology
from workers.documents.plants import LoadForecast
from workers.history.forecasts import WINDOW_SECONDS
from workers.pipeline.dispatch.result_queue import Blob, Result
from workers.pipeline.tiers.finished_batch import OperatorCount, PatternCount
from workers.twin.catalog import ShippedRun
from workers.twin.simulated_application import SimulatedApplication
from workers.twin.simulated_plant import SimulatedPlant
from workers.twin.twin import Twin

QUEUE, NODE, APPLICATION, TOPOLOGY = "telemetry", "n1", "chain", "chain"
DECLARATION = """
name: chain
queues: [telemetry]
sink: alert
key: source
operators:
  - {name: parse, patterns: [{name: parsed, pattern: SEQ(A), define: {A: 'type == "raw"'}, within_seconds: 1}]}
  - {name: filter, key: key, patterns: [{name: filtered, pattern: SEQ(parsed), within_seconds: 1}]}
  - {name: analyse, key: key, patterns: [{name: analysed, pattern: SEQ(filtered), within_seconds: 1}]}
  - {name: sink, key: key, patterns: [{name: stored, pattern: SEQ(analysed), within_seconds: 1}]}
"""
PATTERNS = ("parsed", "filtered", "analysed", "stored")
BATCH_SECONDS, REPLICA_SECONDS = 1.0, 0.01
FORECAST_WINDOWS = 20


def run(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run the loop with the scenario's limits and its pause after a change. Raise `BadInput` for another topology."""
    if settings["topology"] != TOPOLOGY:
        raise BadInput("--set topology", f"must be {TOPOLOGY} with --shipped: its application is a chain")
    fresh = elasticity.generate_new_arrivals(settings, seed, trace)
    day_seconds = elasticity.DAY_SECONDS / settings["compression"]
    course = elasticity.Course(settings, fresh, day_seconds, seed)
    chain, plant = elasticity.build_chain(course), build_plant()
    plant.steer_pipeline(APPLICATION, {"tasks": get_tasks(chain)})
    requirements = {
        "minimum": elasticity.MINIMUM,
        "maximum": elasticity.MAXIMUM,
        "pause_seconds": float(settings["pause_seconds"]),
        "deadline_seconds": float(TIMEOUT_SECONDS),
    }
    twin = Twin(plant, [LAW.name], parameters={LAW.name: requirements})
    forecasts, reported = elasticity.ArrivalForecasts(course), ReportedChain(chain, plant)
    for second, events in enumerate(fresh.tolist()):
        if second % WINDOW_SECONDS == 0 and second >= elasticity.START_SECONDS:
            plant.forecasts[APPLICATION] = build_forecast(forecasts, fresh[:second], plant.clock())
        reported.pass_second(events)
        twin.pass_time()
        controls = plant.get_controls(APPLICATION)
        chain.rescale({kind.name: controls.count_tasks(kind.name) for kind in KINDS}, int(settings["pause_seconds"]))
    return elasticity.summarize(chain)


def build_plant() -> SimulatedPlant:
    """Return a plant with the application, and enough cores for all tasks."""
    queue = QueueSpec(QUEUE, "pipeline", {NODE: TOTAL}, minimum_containers=1)
    plant = SimulatedPlant(Topology(1, {NODE: NodeSpec(NODE, "")}, {QUEUE: queue}))
    plant.add_application(DECLARATION)
    plant.cores = elasticity.MAXIMUM
    return plant


def get_tasks(chain: Chain) -> dict[str, int]:
    return {kind.name: tasks for kind, tasks in zip(KINDS, chain.tasks, strict=True)}


def build_forecast(forecasts: elasticity.ArrivalForecasts, past: Floats, now: float) -> LoadForecast:
    """Return the forecast that the observer makes once a minute."""
    steps = np.asarray((np.arange(FORECAST_WINDOWS) + 0.5) * WINDOW_SECONDS, dtype=np.float64)
    mean, deviation = forecasts.predict(past, steps)
    return LoadForecast(
        at=now, window_seconds=WINDOW_SECONDS, mean_per_second=mean.tolist(), deviation_per_second=deviation.tolist()
    )


@dataclass
class ReportedChain:
    """The chain as the application reports it. rows: events that no batch has read yet."""

    chain: Chain
    plant: SimulatedPlant
    rows: float = 0.0

    def pass_second(self, fresh_events: float) -> None:
        """Let the model process a second, and report it. While the chain pauses, no batch finishes."""
        chain, plant, is_paused = self.chain, self.plant, self.chain.paused_seconds > 0
        application, container = plant.applications[APPLICATION], plant.container(QUEUE, NODE)
        chain.start_measurement()
        chain.run(fresh_events)
        arrived = float(chain.arrived[chain.second - 1])
        self.rows += arrived
        container.insert(arrived, plant.clock())
        container.remove(arrived)
        application.dispatch(arrived, plant.get_controls(APPLICATION))
        plant.clock.now += BATCH_SECONDS
        application.finish_replica_batch(application.declared.replicas[0], arrived, REPLICA_SECONDS, REPLICA_SECONDS)
        if not is_paused:
            self.report_batch(application, plant.clock())
        plant.clock.now -= BATCH_SECONDS

    def report_batch(self, application: SimulatedApplication, now: float) -> None:
        arrived_at = now - BATCH_SECONDS - self.chain.compute_wait_seconds()
        blob = Blob("rows", "source", -1, 0, round(arrived_at * 1e6), round(self.rows), 0)
        entry_id = f"{round(arrived_at * 1_000)}-0"
        result = Result(application.declared.replicas[0], self.chain.second, None, (blob,), entry_id)
        pairs = zip(self.chain.measure(), PATTERNS, strict=True)
        work = tuple(count for operator, name in pairs for count in count_work(operator, name))
        seconds = min(BATCH_SECONDS, max(count.seconds for count in work))
        application.finish_batch(seconds, work, watermark_us=round(arrived_at * 1e6), fresh=(result,))
        self.rows = 0.0


def count_work(operator: MeasuredInterval, pattern: str) -> Iterator[OperatorCount]:
    """Yield the work of each task; all tasks have the same work."""
    for task in range(1, operator.tasks + 1):
        events, emitted = (
            round(total / operator.tasks) for total in (operator.executed_events, operator.emitted_events)
        )
        seconds = events * operator.service_seconds
        yield OperatorCount(
            operator.name, task, events, seconds=seconds, patterns={pattern: PatternCount(matches=emitted)}
        )


SHIPPED = ShippedRun(elasticity.SCENARIO, run)
