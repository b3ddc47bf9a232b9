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

If the limits can't be kept, the load of the worst node is minimized, and the reason names the missing capacity: ΣL /
busy - ΣC. It then stays unchanged while it is within `worst_tolerance` of the best possible.

In Houtman, sections 3.5.1.4 and 4.1.1.2-4.1.1.4, a TOOBUSY node halves randomly chosen containers, because the cause of
the load is unknown (Table 4.1; its second row should read 43.75 %, ERRATA E40). The band is LinkedIn Cruise Control's
rule for the distribution of load over brokers.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from common.errors import BadInput
from common.parameter import Parameter
from controllers.framework.decision import Decision, Expectation, Json
from controllers.framework.law import Law, Remedy, Values
from controllers.framework.reason import NO_ACTION, are, format_count, format_names, format_percent, format_reason
from controllers.rebalancing import relocation
from controllers.rebalancing.allocation import Allocation, Floats, from_observation
from controllers.rebalancing.greedy import MoveRules
from queues.nodes.node_state import BUSY, NORMAL, STATES
from queues.points import TOTAL

# Strictly below BUSY: a node exactly at the threshold is BUSY.
BELOW = 1 - 1e-6
MINIMUM_CONTAINERS = 2  # default minimum
NEWEST = 1  # age of the moves of this decision

PARAMETERS = (
    Parameter(
        "goal",
        "choice",
        "below-busy: fewest points that bring every node below BUSY. band: fewest moves into the band.",
        "below-busy",
        kind="choice",
        choices=("below-busy", "band"),
    ),
    Parameter("busy", "share of capacity", "Load over capacity from which a node is BUSY.", 0.7, 1e-6, 1e9),
    Parameter("toobusy", "share of capacity", "Load over capacity from which a node is TOOBUSY.", 0.9, 1e-6, 1e9),
    Parameter(
        "minimum_containers",
        "containers",
        "Minimum number of containers of a queue. Default: 2, or 1 on a single node.",
        None,
        1,
        1_000,
        "integer",
    ),
    Parameter(
        "minimum_points",
        "points",
        "Minimum points that a move adds to or leaves in a container.",
        50,
        1,
        TOTAL,
        "integer",
    ),
    Parameter(
        "band", "share of the mean", "Maximum load of a node in the goal band, as a share of the mean.", 1.09, 1, 100
    ),
    Parameter(
        "return_decisions",
        "decisions",
        "Number of decisions for which points moved from A to B do not return to A.",
        4,
        0,
        1_000,
        "integer",
    ),
    Parameter(
        "worst_tolerance",
        "share of the best possible",
        "Maximum excess of the worst node over the best possible if the goal can't be reached.",
        0.01,
        0,
        1,
    ),
    Parameter(
        "exact_ways",
        "pairs of container and receiver",
        "Maximum size for the mixed-integer program; the greedy search decides above it.",
        200,
        0,
        100_000,
        "integer",
    ),
    Parameter(
        "branches", "branches", "Maximum number of branches of the mixed-integer solver.", 50, 1, 1_000_000, "integer"
    ),
)
NODE = (
    Parameter("name", "name", "Name of the node.", kind="text", required=True),
    Parameter(
        "capacity",
        "load at utilization 1",
        "Capacity to which the thresholds apply.",
        minimum=1e-9,
        maximum=1e15,
        required=True,
    ),
    Parameter("drained", "flag", "True: the node gives all its points and receives none.", False, kind="flag"),
    Parameter("state", "choice", "Last reported state.", NORMAL, kind="choice", choices=STATES),
    Parameter(
        "cordoned",
        "flag",
        "True: the node keeps its points and receives none, because it is reported as OFFLINE but not lost.",
        False,
        kind="flag",
    ),
)
QUEUE = (
    Parameter("name", "name", "Name of the queue.", kind="text", required=True),
    Parameter("rate", "events/s", "Events inserted per second.", maximum=1e15, required=True),
    Parameter(
        "containers",
        "points",
        "Points per node, 1000 in total.",
        kind="map",
        required=True,
        items=(Parameter("points", "points", "Points of one container.", 0, 0, TOTAL, "integer"),),
    ),
    Parameter(
        "minimum_containers",
        "containers",
        "Minimum number of containers of this queue.",
        None,
        1,
        1_000,
        kind="integer",
    ),
)
OBSERVATION = (
    Parameter("nodes", "rows", "All nodes of the plant.", kind="rows", required=True, items=NODE),
    Parameter("queues", "rows", "All queues of the plant.", kind="rows", required=True, items=QUEUE),
)
RECENT = (
    Parameter("queue", "name", "Name of the queue.", kind="text", required=True),
    Parameter("from", "name", "Node that gave the points.", kind="text", required=True),
    Parameter("to", "name", "Node that received the points.", kind="text", required=True),
    Parameter("age", "decisions", "Number of decisions since the move.", 0, 0, 1_000, "integer", required=True),
)
STATE = (Parameter("recent", "moves", "Recent moves.", kind="rows", required=True, items=RECENT),)


def check_observation(parameters: Values, observation: Values, where: str) -> None:
    """Raise `BadInput` if nodes and queues contradict each other."""
    names = _check_distinct_names(observation["nodes"], f"{where}.nodes")
    _check_distinct_names(observation["queues"], f"{where}.queues")
    for at, queue in enumerate(observation["queues"]):
        _check_queue(parameters, queue, names, f"{where}.queues[{at}]")


def _check_queue(parameters: Values, queue: Values, names: Collection[str], where: str) -> None:
    for node in queue["containers"]:
        if node not in names:
            raise BadInput(f"{where}.containers.{node}", f"is not a node; the nodes are {', '.join(names)}")
    total = sum(queue["containers"].values())
    if total != TOTAL:
        raise BadInput(f"{where}.containers", f"must sum to {TOTAL} points, not {total}")
    minimum = queue["minimum_containers"]
    if minimum is not None and minimum > len(names):
        raise BadInput(
            f"{where}.minimum_containers", f"must be at most {len(names)}, the number of nodes, not {minimum}"
        )
    if minimum is None and (parameters["minimum_containers"] or 1) > len(names):
        raise BadInput(
            "parameters.minimum_containers",
            f"must be at most {len(names)}, the number of nodes, not {parameters['minimum_containers']}",
        )


def compute_minimum_containers(parameters: Values, observation: Values) -> int:
    """Return the minimum of a queue without its own: the parameter, else two or the number of nodes."""
    given = parameters["minimum_containers"]
    return min(MINIMUM_CONTAINERS, len(observation["nodes"])) if given is None else int(given)


def _check_distinct_names(rows: Sequence[Values], where: str) -> Collection[str]:
    """Return the names of the rows. Raise `BadInput` if there are none, or if names are duplicate."""
    names = [row["name"] for row in rows]
    if not names:
        raise BadInput(where, "must have at least one entry")
    seen: dict[str, None] = {}
    for at, name in enumerate(names):
        if name in seen:
            raise BadInput(f"{where}[{at}].name", f"{name} appears twice; names must differ")
        seen[name] = None
    return seen


def check_thresholds(parameters: Values) -> None:
    """Raise `BadInput` if busy is not below toobusy."""
    if parameters["busy"] >= parameters["toobusy"]:
        raise BadInput(
            "parameters.busy", f"must be less than toobusy ({parameters['toobusy']:g}), not {parameters['busy']:g}"
        )


@dataclass(frozen=True)
class _RecentMove:
    """A move that was decided `age` decisions ago."""

    queue: str
    source: str
    target: str
    age: int

    def to_json(self) -> dict[str, Json]:
        return {"queue": self.queue, "from": self.source, "to": self.target, "age": self.age}


class Rebalancing:
    """The fewest points, or moves, that bring the nodes below their limit; see the module."""

    name = "rebalancing"
    parameters: Sequence[Parameter] = PARAMETERS
    observation: Sequence[Parameter] = OBSERVATION
    state: Sequence[Parameter] = STATE
    actuator: str | None = None
    guard_defaults: Values = {}
    remedy = Remedy("rebalance", lasts=False)

    def check(self, parameters: Values) -> None:
        """Raise `BadInput` if the thresholds are in the wrong order, or a split can't leave two pieces."""
        check_thresholds(parameters)
        if 2 * parameters["minimum_points"] > TOTAL:
            raise BadInput(
                "parameters.minimum_points",
                f"must be at most {TOTAL // 2}, so that a queue can have two containers, "
                f"not {parameters['minimum_points']}",
            )

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Raise `BadInput` for an observation that contradicts itself.

        These are duplicate names, containers on unknown nodes, points that don't sum to 1000, and more minimum
        containers than nodes.
        """
        check_observation(parameters, observation, where)

    def build_initial_state(self, parameters: Values) -> Json:
        """Return a state without moves."""
        return {"recent": []}

    def check_state(self, parameters: Values, state: Values, where: str) -> None:
        """Accept any state: entries of nodes and queues that no longer exist do no harm."""

    def correct_state(self, parameters: Values, before: Json, after: Json, action: Values | None) -> Json:
        """Return the state without the newest moves if they are not made."""
        return {"recent": [move for move in after["recent"] if action or move["age"] > NEWEST]}

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """Return the cheapest moves that reach the goal; no action if it is reached."""
        allocation = _allocation(parameters, observation)
        recent = [_RecentMove(move["queue"], move["from"], move["to"], move["age"]) for move in state["recent"]]
        search = _search(parameters, allocation, recent)
        result = relocation.find(allocation, search)
        named = allocation.name_moves(result.moves)
        decision = _build_decision(parameters, allocation, search, result, named)
        return {"recent": [move.to_json() for move in _remember(parameters, recent, named)]}, decision


LAW: Law = Rebalancing()


def _allocation(parameters: Values, observation: Values) -> Allocation:
    allocation = from_observation(observation, compute_minimum_containers(parameters, observation))
    if parameters["goal"] == "below-busy":
        return allocation
    # A band includes the idle nodes, because its purpose is to use everything.
    return replace(allocation, idle=np.zeros_like(allocation.idle))


def _search(parameters: Values, allocation: Allocation, recent: Sequence[_RecentMove]) -> relocation.Search:
    return relocation.Search(
        MoveRules(int(parameters["minimum_points"]), _list_undoing_moves(allocation, recent)),
        _compute_limits(parameters, allocation),
        "points" if parameters["goal"] == "below-busy" else "moves",
        int(parameters["exact_ways"]),
        int(parameters["branches"]),
        float(parameters["worst_tolerance"]),
    )


def _compute_limits(parameters: Values, allocation: Allocation) -> Floats:
    if parameters["goal"] == "below-busy":
        return allocation.capacity * float(parameters["busy"] * BELOW)
    capacity = float(allocation.capacity[allocation.available].sum())
    mean = float(allocation.loads.sum()) / capacity if capacity else 0.0
    # Without traffic every node is in the band; a limit of 0 would cause a division by zero.
    return allocation.capacity * max(float(parameters["band"]) * mean, 1e-12)


def _list_undoing_moves(allocation: Allocation, recent: Sequence[_RecentMove]) -> frozenset[tuple[int, int, int]]:
    """Return the moves that would undo a recent move.

    A drained node may send points back, because it has to be emptied.
    """
    queues = {name: index for index, name in enumerate(allocation.queues)}
    nodes = {name: index for index, name in enumerate(allocation.nodes)}
    known = [move for move in recent if move.queue in queues and {move.source, move.target} <= nodes.keys()]
    back = ((queues[move.queue], nodes[move.target], nodes[move.source]) for move in known)
    return frozenset(way for way in back if not allocation.drained[way[1]])


def _remember(
    parameters: Values, recent: Sequence[_RecentMove], named: Sequence[Mapping[str, Any]]
) -> list[_RecentMove]:
    older = [_RecentMove(move.queue, move.source, move.target, move.age + 1) for move in recent]
    newest = [_RecentMove(move["queue"], move["from"], move["to"], NEWEST) for move in named]
    return [move for move in older + newest if move.age <= parameters["return_decisions"]]


def _build_decision(
    parameters: Values,
    allocation: Allocation,
    search: relocation.Search,
    found: relocation.Relocation,
    named: list[dict[str, Any]],
) -> Decision:
    after = allocation.apply(found.moves)
    terms = _build_terms(parameters, allocation, after, search, found)
    cause = _explain(parameters, allocation, search, found, terms)
    reason = format_reason(_describe_action(named), cause, remarks=_format_remarks(terms))
    limited_by = None if found.feasible else "capacity" if terms["missing_capacity"] else "rules"
    if not named:
        return Decision(None, reason, terms, limited_by)
    loads = {"load_before": terms["load_before"], "load_after": terms["load_after"]}
    gain = terms["worst_before"] - terms["worst_after"]
    expected = Expectation("worst_utilisation", "down", gain, 60.0) if gain > 0 else None
    return Decision({"moves": named, **loads}, reason, terms, limited_by, expected=expected)


def _build_terms(
    parameters: Values, before: Allocation, after: Allocation, search: relocation.Search, found: relocation.Relocation
) -> dict[str, Any]:
    worst_before, worst_after = (_worst(load) for load in (before, after))
    return {
        "load_before": before.group_by_name(before.loads),
        "load_after": after.group_by_name(after.loads),
        "limit": before.group_by_name(search.limits),
        "worst_before": worst_before,
        "worst_after": worst_after,
        "points_moved": relocation.sum_points(found.moves),
        "moves": len(found.moves),
        "containers_before": sum(len(held) for held in before.points),
        "containers_after": sum(len(held) for held in after.points),
        "missing_capacity": _compute_missing_capacity(parameters, before),
        "returns_barred": len(search.rules.returns),
    }


def _worst(allocation: Allocation) -> float:
    """Return the greatest utilization among the reachable nodes."""
    heard = ~allocation.offline
    return float((allocation.loads / allocation.capacity)[heard].max()) if heard.any() else 0.0


def _compute_missing_capacity(parameters: Values, allocation: Allocation) -> float:
    """Return the capacity to add so that every node could be below BUSY."""
    have = float(allocation.capacity[allocation.available].sum())
    needed = float(allocation.loads.sum()) / float(parameters["busy"] * BELOW)
    return round(max(0.0, needed - have), 6)


def _explain(
    parameters: Values,
    allocation: Allocation,
    search: relocation.Search,
    found: relocation.Relocation,
    terms: Mapping[str, Any],
) -> str:

    limit = BUSY if parameters["goal"] == "below-busy" else f"{parameters['band']:g} times the mean"
    if not found.feasible:
        missing = terms["missing_capacity"]
        rules = "the limits on containers, points, and return moves prevent it"
        why = f"the plant's capacity is too small by {missing:g}" if missing else rules
        return f"not every node can be below {limit}, because {why}"
    to_empty = allocation.drained & ~allocation.offline & [bool(held) for held in allocation.at_node]
    over = (allocation.loads > search.limits) & allocation.available
    causes = [
        f"{format_names(names)} {are(names)} {what}"
        for chosen, what in ((to_empty, "drained"), (over, f"over {limit}"))
        if (names := [allocation.nodes[node] for node in np.flatnonzero(chosen)])
    ]
    return "; ".join(causes) or f"every node is below {limit}"


def _format_remarks(terms: Mapping[str, Any]) -> list[str]:
    before, after = format_percent(terms["worst_before"]), format_percent(terms["worst_after"])
    change = before if before == after else f"{before} → {after}"
    return [f"worst node: {change} of its capacity"]


def _describe_action(named: Sequence[Mapping[str, Any]]) -> str:
    """Return the action in words: one move with its nodes, or the number and sum of several."""
    if not named:
        return NO_ACTION
    points = format_count(sum(move["points"] for move in named), "point")
    if len(named) == 1:
        return f"Move {points} of {named[0]['queue']} {named[0]['from']} → {named[0]['to']}"
    return f"Move {points} in {len(named)} moves"
