"""The shipped run of the scenario `ladder`: the remedy ladders of two queues, each read by its own application.

A person has set the ladders to auto. The loops of the lower levels, the producers, and shedding are the
scenario's model. Their loops are in auto too: they act on their own while the plant is overloaded, at their own
intervals, and at once when a ladder requests it. A throttled producer holds its events back, and sends them later at no
more than the rate of the overload. Shedding drops events that would wait for longer than the bound.
"""

from collections.abc import Collection, Mapping
from typing import Any

from common.stored_document import replace_fields
from controllers.shedding.ladder import LAW
from controllers.simulation import ladder
from controllers.simulation.ladder import BASE, LadderTally, QueueLane, SimulatedLadder
from controllers.simulation.scenario import Floats, ScenarioOutcome
from queues.points import TOTAL
from queues.topology import Capacity, NodeSpec, QueueSpec, Topology
from workers.control.kinds import node_scaling, parallelism_joint, rebalancing, shedding
from workers.control.kinds.ladder import FULL
from workers.documents.loops import LoopStatus
from workers.documents.plans import PlanStatus
from workers.documents.snapshot import Snapshot
from workers.models import Loop
from workers.pipeline.tiers.finished_batch import OperatorCount, PatternCount
from workers.steering import scope
from workers.twin.catalog import ShippedRun
from workers.twin.simulated_plant import SimulatedPlant
from workers.twin.twin import Twin

PRODUCER, TYPE, PATTERN = "api", "A", "any"
NODES, IDLE = ("n1", "n2"), ("n3", "n4")
SHED_BOUND_SECONDS = float(shedding.KIND.defaults.parameters["latency_bound_seconds"])
SECONDS = {"rebalance": rebalancing.KIND.interval_seconds, "workers": 1, "nodes": node_scaling.KIND.interval_seconds}
LAWS = {"rebalance": rebalancing.KIND.name, "workers": parallelism_joint.KIND.name, "nodes": node_scaling.KIND.name}
DECLARATION = """
name: {name}
queues: [{name}]
sink: alert
replicas: 1
patterns:
  - name: any
    pattern: SEQ(A)
    define: {{A: 'type == "A"'}}
    key: source
    within_seconds: 1
    emits: any
"""


class LadderPlant(SimulatedPlant):
    """The plant, with the simulated loops of the levels rebalance, workers, and nodes, which act on `effects`."""

    def __init__(self, lanes: Mapping[str, QueueLane]) -> None:
        capacity = Capacity(100 * BASE)  # the operators are the bottleneck, not the nodes
        nodes = {name: NodeSpec(name, "", capacity) for name in (*NODES, *IDLE)}
        points = dict.fromkeys(NODES, TOTAL // len(NODES))
        super().__init__(Topology(1, nodes, {name: QueueSpec(name, "pipeline", points) for name in lanes}))
        for name in lanes:
            self.add_application(DECLARATION.format(name=name))
        self.lanes, self.effects = lanes, SimulatedLadder()
        self._decided, self._asked = dict.fromkeys(LAWS, 0.0), set[str]()
        self._helpers: dict[str, LoopStatus] = {}

    def publish(self, loops: dict[str, LoopStatus]) -> Snapshot:
        is_placing = self.effects.placing and self.effects.placed < 1.0
        plans = [PlanStatus(id=1, state="running")] if is_placing or self.effects.starting else []
        self._snapshot = replace_fields(super().publish({**loops, **self._helpers}), plans=plans)
        return self._snapshot

    def request_decisions(self, loops: Collection[str]) -> None:
        self._asked.update(loops)

    def simulate_helpers(self, is_overloaded: bool, second: int) -> None:
        """Let the due simulated loops decide, and advance their effects by a second."""
        now, saturated = self.clock(), self.effects.list_exhausted_levels(0.0)
        for level, law in LAWS.items():
            targets = (
                {law: {}} if level != "workers" else {f"{law}/{name}": {"application": name} for name in self.lanes}
            )
            if now - self._decided[level] >= SECONDS[level] or self._asked.intersection(targets):
                self._decided[level] = now
                relief = f"act on {level}" if is_overloaded and not saturated[level] else None
                for name, target in targets.items():
                    status = LoopStatus(law=law, target=target, mode=Loop.Mode.AUTO, at=now, relief=relief)
                    self._helpers[name] = status
        self._asked.clear()
        acting = {status.law for status in self._helpers.values() if status.relief}
        levels = [level for level, law in LAWS.items() if law in acting]
        self.effects.simulate_second(levels, second % ladder.DECISION_SECONDS == 0)

    def process(self, name: str, demand: float, fastest: float) -> float:
        """Process one second of a queue, and return the events that were shed.

        fastest: the maximum rate at which its producers send events that they held back.
        """
        lane, capacity, now = self.lanes[name], self.effects.compute_capacity() * self.lanes[name].share, self.clock()
        closed = self.compute_throttled_share(name)
        blocked = min(closed * demand, max(0.0, ladder.HELD_EVENTS * capacity / BASE - lane.held_back))
        returned = min(lane.held_back, (1 - closed) * max(0.0, fastest - demand))
        lane.held_back += blocked - returned
        came = demand - blocked + returned
        self.published[PRODUCER, name] = self.published.get((PRODUCER, name), 0.0) + came
        dropped = 0.0
        if scope.list_shedding_queues([name], self.observe()):
            dropped = max(0.0, lane.waiting + came - capacity * (1 + SHED_BOUND_SECONDS))
        processed = min(capacity, lane.waiting + came - dropped)
        lane.waiting, lane.lost = lane.waiting + came - dropped - processed, lane.lost + dropped
        for node in NODES:
            container = self.container(name, node)
            container.insert(came / len(NODES), now)
            container.remove((processed + dropped) / len(NODES))
        self._report_batch(name, processed, FULL * processed / capacity)
        return dropped

    def _report_batch(self, name: str, events: float, seconds: float) -> None:
        application = self.applications[name]
        application.dispatch(events, self.get_controls(name))
        application.finish_replica_batch(application.declared.replicas[0], events, 0.1, 0.1)
        count = PatternCount(types={TYPE: round(events)}, seconds=seconds)
        (operator,) = application.declared.graph.operators
        work = OperatorCount(operator.name, events=round(events), seconds=seconds, patterns={PATTERN: count})
        application.finish_batch(seconds, (work,))


def run(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run the ladders for an hour."""
    offered, lanes = ladder.generate_offered(settings, trace), ladder.build_lanes(settings)
    plant, tally, fastest = LadderPlant(lanes), LadderTally(), float(offered.max())
    twin = Twin(plant, [LAW.name], modes={LAW.name: Loop.Mode.AUTO})
    loops = {name: twin.loops[f"{LAW.name}/{name}"] for name in lanes}
    for name, lane in lanes.items():
        loops[name].parameters = {**loops[name].parameters, "cap": lane.cap}
    for second, demand in enumerate(offered.tolist()):
        capacity = plant.effects.compute_capacity()
        dropped = sum(plant.process(name, demand * lane.share, fastest * lane.share) for name, lane in lanes.items())
        plant.simulate_helpers(demand > capacity or sum(lane.waiting for lane in lanes.values()) > capacity, second)
        twin.pass_time()
        for name, lane in lanes.items():
            if entry := twin.last_entries.get(f"{LAW.name}/{name}"):
                lane.level = int(entry.terms.get("rung", lane.level))
        tally.record_second(plant.effects, lanes, dropped)
    return tally.summarize(lanes, offered)


SHIPPED = ShippedRun(ladder.SCENARIO, run, metric="lost_events")
