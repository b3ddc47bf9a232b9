"""Plans of loops on the simulated plant, executed a step at a time, as `workers.placement.execution` does."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

from common.stored_document import convert
from queues.topology import Topology
from workers.documents.plans import PlanMove, PlanStatus
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop, Plan
from workers.placement import moves, plans, proposals
from workers.placement.moves import STEPS_PER_SECOND, Division, Move
from workers.twin.simulated_container import SimulatedContainer

Container = Callable[[str, str], SimulatedContainer]  # of a queue, on a node


@dataclass
class SimulatedPlan:
    """An approved plan.

    base: the points of each queue for which it was computed. pending: remaining moves by queue. empties: the node to
    empty, or "".
    """

    number: int
    kind: str
    moves: list[Move]
    base: Division
    empties: str
    pending: dict[str, list[Move]] = field(default_factory=dict)

    def build_status(self) -> PlanStatus:
        return PlanStatus(
            id=self.number,
            state=Plan.State.RUNNING.value,
            kind=self.kind,
            points=sum(move.points for move in self.moves),
            empties=self.empties or None,
            moves=[convert(PlanMove, move.to_json()) for move in self.moves],
        )


class SimulatedPlans:
    """The open plans. rebalancing: the loop with the parameters and memory for the rebalancing law, if any.

    made: the moves since the start, by the kind of their plan.
    """

    def __init__(self) -> None:
        self.rebalancing: Loop | None = None
        self.open: list[SimulatedPlan] = []
        self.made: dict[str, list[Move]] = {}
        self._numbers = count(1)

    def begin(self, entry: LedgerEntry, snapshot: Snapshot, topology: Topology) -> None:
        """Start the plan of a decision. Raise `BadInput` in the same cases as the real plant."""
        planned = proposals.plan_decision(
            entry,
            snapshot,
            entry.at,
            topology,
            lambda wanted, now, values, horizon: proposals.decide_moves(
                self.rebalancing, [], wanted, now, values, horizon
            ),
        )
        if planned.moves or not planned.empties:
            moves.check(planned.moves, topology, plans.find_offline_nodes(snapshot))
        pending = moves.group_by_queue(planned.moves)
        base = moves.list_live_points(topology, pending)
        number = next(self._numbers)
        self.open.append(SimulatedPlan(number, planned.kind, planned.moves, base, planned.empties, pending))

    def advance(self, topology: Topology, container: Container, seconds: float, now: float) -> Topology:
        """Execute the open plans for this time, remove ended plans, and return the new topology.

        A plan ends early if another one has changed the points of a queue, a target is closed, or the node to be
        emptied has points again.
        """
        for plan in list(self.open):
            for queue in list(plan.pending)[: round(STEPS_PER_SECOND * seconds)]:
                if _has_drifted(topology, plan, queue):
                    self.open.remove(plan)
                    break
                made = plan.pending.pop(queue)
                topology = _move_queue(topology, queue, made)
                self.made.setdefault(plan.kind, []).extend(made)
            if plan in self.open and not plan.pending:
                if plan.empties and not topology.has_points(plan.empties):
                    _transfer_events(topology, plan.empties, container, now)
                self.open.remove(plan)
        return _remove_empty_containers(topology, container)


def _has_drifted(topology: Topology, plan: SimulatedPlan, queue: str) -> bool:
    """Return whether the moves of a queue are no longer possible as planned."""
    targets = (topology.nodes[move.target] for move in plan.pending[queue])
    return topology.queue(queue).live_points != plan.base[queue] or not all(node.takes_points for node in targets)


def _move_queue(topology: Topology, queue: str, made: list[Move]) -> Topology:
    """Move the points of one queue; a container without points drains."""
    spec = topology.queue(queue)
    points = moves.apply_moves({queue: spec.live_points}, made)[queue]
    queues = {**topology.queues, queue: replace(spec, points={**dict.fromkeys(spec.points, 0), **points})}
    return replace(topology, revision=topology.revision + 1, queues=queues)


def _transfer_events(topology: Topology, node: str, container: Container, now: float) -> None:
    """Transfer the waiting events of jobs queues on the node to their other containers."""
    for name, spec in topology.queues.items():
        if spec.kind == "jobs" and node in spec.points:
            source, total = container(name, node), sum(spec.live_points.values())
            waiting = source.waiting_events
            for target, points in spec.live_points.items():
                source.send(waiting * points / total, container(name, target), now)


def _remove_empty_containers(topology: Topology, container: Container) -> Topology:
    queues = {}
    for name, spec in topology.queues.items():
        kept = {
            node: points for node, points in spec.points.items() if points or container(name, node).waiting_events > 0
        }
        queues[name] = spec if len(kept) == len(spec.points) else replace(spec, points=kept)
    return replace(topology, queues=queues)
