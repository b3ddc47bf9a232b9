"""The shipped run of the scenario `flow`: the free space of an application's result queue.

The lab's result queue is as large as that of a plant (`result_bytes`), and an event of the lab is a block of
`BLOCK_EVENTS` events. The dispatcher checks its limits every `BUSY_PAUSE_SECONDS`. An event that it admits is in the
result queue `PASSING_SECONDS` later. A person sets the setpoint of the scenario. The plant runs with a constant load
for `WARM_UP_SECONDS` before the first sample, so that the loop is at rest then.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from common.errors import BadInput
from controllers.flow.admission import LAW
from controllers.simulation import flow
from controllers.simulation.flow import CAPACITY_KB, KB_PER_EVENT, SAMPLE_SECONDS, SAMPLES, A, Disturbances
from controllers.simulation.scenario import Floats, ScenarioOutcome
from queues.events.block import BLOCK_EVENTS
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.admission import AdmissionLimits
from workers.pipeline.dispatch.dispatcher import BUSY_PAUSE_SECONDS
from workers.pipeline.dispatch.result_queue import ASSUMED_BYTES, RESULT_FADE
from workers.twin.balance import APPLICATION, NODE, QUEUE, build_plant
from workers.twin.catalog import ShippedRun
from workers.twin.simulated_plant import SimulatedPlant
from workers.twin.twin import Twin

PASSING_SECONDS, WARM_UP_SECONDS = 1.0, 120
REPLICA = "iap1"
STEPS = round(1 / BUSY_PAUSE_SECONDS)  # per second
BYTES_PER_KB = Controls().result_bytes / CAPACITY_KB
EVENT_BYTES = KB_PER_EVENT * BYTES_PER_KB / BLOCK_EVENTS


def run(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run the loop for half an hour. Raise `BadInput` for the settings of a law's model."""
    if settings["delay"] or settings["designed_delay"] >= 0:
        raise BadInput("--set delay", "must be the default with --shipped; the loop has the delay of a plant")
    if settings["replicas"] > 1:
        raise BadInput("--set replicas", "must be 1 with --shipped; the replicas of a plant share one result queue")
    course = flow.build_course(settings, seed, trace)
    return flow.summarize(settings, course, *simulate(course))


def simulate(course: Disturbances) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the free space (kB), and the events admitted, served, and dropped, sample by sample."""
    plant = build_plant(replicas=1)
    twin = Twin(plant, [LAW.name], parameters={LAW.name: {"setpoint": float(course.setpoint_kb[0]) * BYTES_PER_KB}})
    [loop], tiers = twin.loops.values(), _SimulatedTiers(plant)
    calm = flow.build_course({"ramp": 0, "hog": 0.0, "noise": 0.0, "gain_factor": 1.0, "starvation": 0}, 0, None)
    for _ in range(WARM_UP_SECONDS):
        tiers.process_second(calm, 0)
        twin.pass_time()
    tiers.remove_waiting()
    counts, free = np.zeros((3, SAMPLES)), np.zeros(SAMPLES)
    for sample in range(SAMPLES):
        loop.parameters = {**loop.parameters, "setpoint": float(course.setpoint_kb[sample]) * BYTES_PER_KB}
        free[sample] = CAPACITY_KB - tiers.used_bytes / BYTES_PER_KB
        for _ in range(round(SAMPLE_SECONDS)):
            counts[:, sample] += tiers.process_second(course, sample)
            twin.pass_time()
    return free, *(counts / BLOCK_EVENTS)


class _SimulatedTiers:
    """The dispatcher, the replica, and the stage behind the result queue. Rates of the lab are per sample."""

    def __init__(self, plant: SimulatedPlant) -> None:
        self._plant, self._application = plant, plant.applications[APPLICATION]
        self._container = plant.container(QUEUE, NODE)
        self._admission = AdmissionLimits(plant.clock())
        self._passing = deque([0] * round(PASSING_SECONDS * STEPS))
        self._passed_bytes = self.used_bytes = 0.0
        self._recent_events = self._recent_bytes = 0.0  # of the newest results

    def remove_waiting(self) -> None:
        """Remove the events that were not admitted."""
        self._container.remove(self._container.waiting_events)

    def process_second(self, course: Disturbances, sample: int) -> tuple[int, float, float]:
        """Process one second of a sample, and return the events that were admitted, served, and dropped."""
        began, share = self._plant.clock(), BLOCK_EVENTS / SAMPLE_SECONDS / STEPS
        offered, capable = float(course.offered[sample]) * share, float(course.capable[sample]) * share
        event_bytes = EVENT_BYTES * float(course.gain[sample])
        admitted, served, dropped, passed = 0, 0.0, 0.0, 0
        for step in range(STEPS):
            now = began + step / STEPS
            self._container.insert(offered, now)
            available = 0 if course.starved[sample] else int(self._container.waiting_events)
            events = self._admit(available, now)
            admitted += events
            self._passing.append(events)
            arriving = self._passing.popleft()
            passed += arriving
            done, lost = self._store(arriving, event_bytes, capable)
            served, dropped = served + done, dropped + lost
        if passed:
            self._recent_events = RESULT_FADE * self._recent_events + passed
            self._recent_bytes = RESULT_FADE * self._recent_bytes + passed * event_bytes
        self._plant.clock.now = began + 1.0
        self._application.dispatch(admitted, self._plant.get_controls(APPLICATION))
        self._application.finish_replica_batch(REPLICA, passed, PASSING_SECONDS, PASSING_SECONDS)
        self._application.finish_batch(1.0)
        self._plant.clock.now = began
        return admitted, served, dropped

    def _admit(self, available: int, now: float) -> int:
        """Return the events that the dispatcher admits now."""
        room = self._application.room
        room.used_bytes, room.in_flight_events = self.used_bytes, float(sum(self._passing))
        room.bytes_per_event = self._recent_bytes / self._recent_events if self._recent_events else ASSUMED_BYTES
        room.released_bytes = self._passed_bytes - self.used_bytes
        measured, controls = room.measure_room(), self._plant.get_controls(APPLICATION).freeze(now)
        limit, _ = self._admission.compute_limit(controls, measured, now, now)
        beyond = self._admission.count_stall_events(controls, measured, now, now)
        events = max(0, min(available, max(limit, beyond)))
        self._container.remove(events)
        if limit >= beyond:
            self._admission.spend(events)
        return events

    def _store(self, events: int, event_bytes: float, capable: float) -> tuple[float, float]:
        """Store events in the result queue for one step, and return the events that left it and those without room."""
        self._passed_bytes += events * event_bytes
        contents = A ** (1 / SAMPLE_SECONDS / STEPS) * self.used_bytes + event_bytes * (events - capable)
        capacity = CAPACITY_KB * BYTES_PER_KB
        self.used_bytes = min(max(contents, 0.0), capacity)
        return max(0.0, capable - max(0.0, -contents) / event_bytes), max(0.0, contents - capacity) / event_bytes


SHIPPED = ShippedRun(flow.SCENARIO, run)
