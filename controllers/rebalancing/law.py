"""The rebalancing law, which moves points between nodes.

Its goal is the fewest points until all nodes are below BUSY, or the fewest moves into a band. Load of container (q, n):
rate_q * points_qn / points_q [events/s]; load of a node L_n: their sum. With the capacity C_n of a node and the
thresholds as shares of it (or C_n = 1 and the thresholds in events/s):

    below-busy   minimize Σ points moved   such that  L_n < busy * C_n           for every node
    band         minimize Σ moves          such that  L_n ≤ band * C_n * ΣL / ΣC  for every node

A drained node gives all its points and receives none. An OFFLINE node neither gives nor receives (`node_scaling`
restores its lost points). A queue keeps its minimum of containers, and no piece below `minimum_points` leaves or stays.
Nodes that hold the queue are preferred. IDLE nodes are used in below-busy only if the others don't suffice, while a
band includes them. Points moved from A to B do not return to A within `return_decisions`.

A heavy queue, whose two smallest pieces would fill half a node, is divided evenly, into pieces of about
`minimum_points` or multiples. A piece below twice that can't be divided again, and in a queue at 5000 events/s a piece
of 99 points alone makes a node TOOBUSY. Even pieces cost a few points more than the minimum.

If the load is expected to rise until the next decision (`forecast_at`), the limits have to be kept at the `expected`
rates, so that points move before a ramp and not after it. If that is impossible, the current rates count.

If the limits can't be kept, the load of the worst node is minimized, and the reason names the missing capacity: ΣL /
busy - ΣC. It then stays unchanged while it is within `worst_tolerance` of the best possible.

In Houtman, sections 3.5.1.4 and 4.1.1.2-4.1.1.4, a TOOBUSY node halves randomly chosen containers, because the cause of
the load is unknown (Table 4.1; its second row should read 43.75 %, ERRATA E40). The band is LinkedIn Cruise Control's
rule for the distribution of load over brokers.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from common.errors import BadInput
from common.parameter import value
from controllers.framework.decision import Decision, Expectation
from controllers.framework.law import Law, Remedy, Values
from controllers.framework.reason import (
    NO_ACTION,
    are,
    format_count,
    format_expected,
    format_names,
    format_percent,
    format_reason,
)
from controllers.rebalancing import relocation
from controllers.rebalancing.allocation import (
    Allocation,
    CapacitySource,
    Floats,
    ObservedNode,
    ObservedQueue,
    PlantObservation,
    from_observation,
)
from controllers.rebalancing.greedy import MoveRules
from queues.nodes.node_state import BUSY
from queues.points import TOTAL

# Strictly below BUSY: a node exactly at the threshold is BUSY.
BELOW = 1 - 1e-6
MINIMUM_CONTAINERS = 2  # default minimum
NEWEST = 1  # age of the moves of this decision


class RebalancingParameters(msgspec.Struct, frozen=True, kw_only=True):
    goal: Annotated[
        Literal["below-busy", "band"],
        value(
            "choice", "below-busy: fewest points that bring every node below BUSY. band: fewest moves into the band."
        ),
    ] = "below-busy"
    busy: Annotated[float, value("share of capacity", "Load over capacity from which a node is BUSY.", 1e-6, 1e9)] = 0.7
    toobusy: Annotated[
        float, value("share of capacity", "Load over capacity from which a node is TOOBUSY.", 1e-6, 1e9)
    ] = 0.9
    capacity: CapacitySource = "measured"
    minimum_containers: Annotated[
        int | None,
        value("containers", "Minimum number of containers of a queue. Default: 2, or 1 on a single node.", 1, 1_000),
    ] = None
    minimum_points: Annotated[
        int, value("points", "Minimum points that a move adds to or leaves in a container.", 1, TOTAL)
    ] = 50
    band: Annotated[
        float, value("share of the mean", "Maximum load of a node in the goal band, as a share of the mean.", 1, 100)
    ] = 1.09
    return_decisions: Annotated[
        int, value("decisions", "Number of decisions for which points moved from A to B do not return to A.", 0, 1_000)
    ] = 4
    worst_tolerance: Annotated[
        float,
        value(
            "share of the best possible",
            "Maximum excess of the worst node over the best possible if the goal can't be reached.",
            0,
            1,
        ),
    ] = 0.01
    exact_ways: Annotated[
        int,
        value(
            "pairs of container and receiver",
            "Maximum size for the mixed-integer program; the greedy search decides above it.",
            0,
            100_000,
        ),
    ] = 200
    branches: Annotated[
        int, value("branches", "Maximum number of branches of the mixed-integer solver.", 1, 1_000_000)
    ] = 50


class RecentMove(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    queue: Annotated[str, value("name", "Name of the queue.")]
    source: Annotated[str, value("name", "Node that gave the points.")]
    target: Annotated[str, value("name", "Node that received the points.")]
    age: Annotated[int, value("decisions", "Number of decisions since the move.", 0, 1_000)]


class RebalancingState(msgspec.Struct, frozen=True):
    recent: Annotated[tuple[RecentMove, ...], value("moves", "Recent moves.", required=True)] = ()


def check_plant(minimum_containers: int | None, observation: PlantObservation, where: str) -> None:
    """Raise `BadInput` for an observation that contradicts itself.

    These are duplicate names, containers on unknown nodes, points that don't sum to 1000, and more minimum containers
    than nodes.
    """
    names = _check_distinct_names(observation.nodes, f"{where}.nodes")
    _check_distinct_names(observation.queues, f"{where}.queues")
    for at, queue in enumerate(observation.queues):
        field = f"{where}.queues[{at}]"
        for node in queue.containers:
            if node not in names:
                raise BadInput(f"{field}.containers.{node}", f"is not a node; the nodes are {', '.join(names)}")
        total = sum(queue.containers.values())
        if total != TOTAL:
            raise BadInput(f"{field}.containers", f"must sum to {TOTAL} points, not {total}")
        own = queue.minimum_containers is not None
        minimum = (queue.minimum_containers if own else minimum_containers) or 1
        if minimum > len(names):
            raise BadInput(
                f"{field if own else 'parameters'}.minimum_containers",
                f"must be at most {len(names)}, the number of nodes, not {minimum}",
            )


def compute_minimum_containers(minimum: int | None, observation: PlantObservation) -> int:
    """Return the minimum of a queue without its own: the parameter, else two or the number of nodes."""
    return min(MINIMUM_CONTAINERS, len(observation.nodes)) if minimum is None else minimum


def _check_distinct_names(rows: Sequence[ObservedNode | ObservedQueue], where: str) -> Collection[str]:
    """Return the names of the rows. Raise `BadInput` if there are none, or if names are duplicate."""
    if not rows:
        raise BadInput(where, "must have at least one entry")
    seen: dict[str, None] = {}
    for at, row in enumerate(rows):
        if row.name in seen:
            raise BadInput(f"{where}[{at}].name", f"{row.name} appears twice; names must differ")
        seen[row.name] = None
    return seen


def check_thresholds(busy: float, toobusy: float) -> None:
    if busy >= toobusy:
        raise BadInput("parameters.busy", f"must be less than toobusy ({toobusy:g}), not {busy:g}")


class Rebalancing(Law[RebalancingParameters, PlantObservation, RebalancingState]):
    """The fewest points, or moves, that bring the nodes below their limit; see the module.

    In a state, moves of nodes and queues that no longer exist do no harm.
    """

    name = "rebalancing"
    Parameters, Observation, State = RebalancingParameters, PlantObservation, RebalancingState
    remedy = Remedy("rebalance", lasts=False)

    def check(self, parameters: RebalancingParameters) -> None:
        """Raise `BadInput` if the thresholds are in the wrong order, or a split can't leave two pieces."""
        check_thresholds(parameters.busy, parameters.toobusy)
        if 2 * parameters.minimum_points > TOTAL:
            raise BadInput(
                "parameters.minimum_points",
                f"must be at most {TOTAL // 2}, so that a queue can have two containers, "
                f"not {parameters.minimum_points}",
            )

    def check_observation(self, parameters: RebalancingParameters, observation: PlantObservation, where: str) -> None:
        check_plant(parameters.minimum_containers, observation, where)

    def correct(
        self,
        parameters: RebalancingParameters,
        before: RebalancingState,
        after: RebalancingState,
        action: Values | None,
    ) -> RebalancingState:
        """Return the state without the newest moves if they are not made."""
        return RebalancingState(tuple(move for move in after.recent if action or move.age > NEWEST))

    def decide(
        self, parameters: RebalancingParameters, state: RebalancingState, observation: PlantObservation
    ) -> tuple[RebalancingState, Decision]:
        """Return the cheapest moves that reach the goal; no action if it is reached."""
        least = compute_minimum_containers(parameters.minimum_containers, observation)
        allocation = from_observation(observation, least, parameters.capacity)
        if parameters.goal == "band":
            # A band includes the idle nodes, because its purpose is to use everything.
            allocation = replace(allocation, idle=np.zeros_like(allocation.idle))
        expected = _expect(allocation, observation)
        search = _build_search(parameters, expected, state)
        result = relocation.find(expected, search)
        if expected is not allocation and not result.feasible:
            expected, search = allocation, _build_search(parameters, allocation, state)
            result = relocation.find(allocation, search)
        named = allocation.name_moves(result.moves)
        older = [RecentMove(move.queue, move.source, move.target, move.age + 1) for move in state.recent]
        newest = [
            RecentMove(
                allocation.queues[move.queue], allocation.nodes[move.source], allocation.nodes[move.target], NEWEST
            )
            for move in result.moves
        ]
        recent = tuple(move for move in older + newest if move.age <= parameters.return_decisions)
        outlook = _Outlook(allocation, expected, observation.forecast_at)
        return RebalancingState(recent), _build_decision(parameters, outlook, search, result, named)


LAW = Rebalancing()


@dataclass(frozen=True)
class _Outlook:
    """The plant with its current rates, and with those for which the moves are chosen, at a time of the forecast."""

    now: Allocation
    expected: Allocation
    at: float | None


def _expect(allocation: Allocation, observation: PlantObservation) -> Allocation:
    """Return the allocation with the expected rates; the same if none is forecast."""
    if observation.forecast_at is None:
        return allocation
    rates = [
        now if queue.expected is None else queue.expected * (now / queue.rate if queue.rate else 1.0)
        for now, queue in zip(allocation.rate.tolist(), observation.queues, strict=True)
    ]
    return replace(allocation, rate=np.array(rates, dtype=float))


def _build_search(
    parameters: RebalancingParameters, allocation: Allocation, state: RebalancingState
) -> relocation.Search:
    return relocation.Search(
        MoveRules(parameters.minimum_points, _list_undoing_moves(allocation, state.recent)),
        _compute_limits(parameters, allocation),
        "points" if parameters.goal == "below-busy" else "moves",
        parameters.exact_ways,
        parameters.branches,
        parameters.worst_tolerance,
    )


def _compute_limits(parameters: RebalancingParameters, allocation: Allocation) -> Floats:
    if parameters.goal == "below-busy":
        return allocation.capacity * float(parameters.busy * BELOW)
    capacity = float(allocation.capacity[allocation.available].sum())
    mean = float(allocation.loads.sum()) / capacity if capacity else 0.0
    # Without traffic every node is in the band; a limit of 0 would cause a division by zero.
    return allocation.capacity * max(parameters.band * mean, 1e-12)


def _list_undoing_moves(allocation: Allocation, recent: Sequence[RecentMove]) -> frozenset[tuple[int, int, int]]:
    """Return the moves that would undo a recent move. A drained node may send points back, as it has to be emptied."""
    queues = {name: index for index, name in enumerate(allocation.queues)}
    nodes = {name: index for index, name in enumerate(allocation.nodes)}
    known = [move for move in recent if move.queue in queues and {move.source, move.target} <= nodes.keys()]
    back = ((queues[move.queue], nodes[move.target], nodes[move.source]) for move in known)
    return frozenset(way for way in back if not allocation.drained[way[1]])


def _build_decision(
    parameters: RebalancingParameters,
    outlook: _Outlook,
    search: relocation.Search,
    found: relocation.Relocation,
    named: list[dict[str, Any]],
) -> Decision:
    before, ahead = outlook.now, outlook.expected
    after, heard = before.apply(found.moves), ~before.offline
    worst_before, worst_after = (
        float((allocation.loads / allocation.capacity)[heard].max()) if heard.any() else 0.0
        for allocation in (before, after)
    )
    # The capacity to add so that every node could be below BUSY.
    needed = float(ahead.loads.sum()) / float(parameters.busy * BELOW)
    missing = round(max(0.0, needed - float(before.capacity[before.available].sum())), 6)
    loads = {"load_before": before.group_by_name(before.loads), "load_after": after.group_by_name(after.loads)}
    terms = {
        **loads,
        "limit": before.group_by_name(search.limits),
        "worst_before": worst_before,
        "worst_after": worst_after,
        "points_moved": relocation.sum_points(found.moves),
        "moves": len(found.moves),
        "containers_before": sum(len(held) for held in before.points),
        "containers_after": sum(len(held) for held in after.points),
        "missing_capacity": missing,
        "returns_barred": len(search.rules.returns),
    }
    if ahead is not before:
        terms |= {"load_forecast": ahead.group_by_name(ahead.loads), "forecast_at": outlook.at}
    points = format_count(relocation.sum_points(found.moves), "point")
    action = f"Move {points} in {len(named)} moves" if named else NO_ACTION
    if len(found.moves) == 1:
        move = found.moves[0]
        way = f"{before.nodes[move.source]} → {before.nodes[move.target]}"
        action = f"Move {points} of {before.queues[move.queue]} {way}"
    cause = _explain(parameters, outlook, search, found, missing)
    was, becomes = format_percent(worst_before), format_percent(worst_after)
    remark = f"worst node: {was if was == becomes else f'{was} → {becomes}'} of its capacity"
    reason = format_reason(action, cause, remarks=[remark])
    limited_by = None if found.feasible else "capacity" if missing else "rules"
    if not named:
        return Decision(None, reason, terms, limited_by)
    gain = worst_before - worst_after
    expected = Expectation("worst_utilisation", "down", gain, 60.0) if gain > 0 else None
    return Decision({"moves": named, **loads}, reason, terms, limited_by, expected=expected)


def _explain(
    parameters: RebalancingParameters,
    outlook: _Outlook,
    search: relocation.Search,
    found: relocation.Relocation,
    missing: float,
) -> str:
    allocation, expected = outlook.now, outlook.expected
    limit = BUSY if parameters.goal == "below-busy" else f"{parameters.band:g} times the mean"
    if not found.feasible:
        rules = "the limits on containers, points, and return moves prevent it"
        why = f"the plant's capacity is too small by {missing:g}" if missing else rules
        return f"not every node can be below {limit}, because {why}"
    to_empty = allocation.drained & ~allocation.offline & [bool(held) for held in allocation.at_node]
    over = (allocation.loads > search.limits) & allocation.available
    soon = (expected.loads > search.limits) & allocation.available & ~over
    growth = float(expected.loads.sum()) / max(float(allocation.loads.sum()), 1e-9)
    ramp = format_expected(outlook.at, growth) if outlook.at is not None else ""
    causes = [
        sentence.format(names=format_names(names), are=are(names))
        for chosen, sentence in (
            (to_empty, "{names} {are} drained"),
            (over, f"{{names}} {{are}} over {limit}"),
            (soon, f"{ramp} would bring {{names}} over {limit}"),
        )
        if (names := [allocation.nodes[node] for node in np.flatnonzero(chosen)])
    ]
    return "; ".join(causes) or f"every node is below {limit}"
