"""Moves points between nodes: for the fewest points until all are below BUSY, or for the fewest moves into a
band.

Load of container (q, n): rate_q * points_qn / points_q [events/s]; load of a node L_n: their sum. With the
capacity C_n of a node and the thresholds as shares of it (or C_n = 1 and the thresholds in events/s):

    below-busy   minimise Σ points moved   such that  L_n < busy * C_n           for every node
    band         minimise Σ moves          such that  L_n ≤ band * C_n * ΣL / ΣC  for every node

A drained node gives all it holds and gets nothing; an OFFLINE node neither gives nor gets (its lost points
are `node_scaling`'s to restore). A queue keeps its minimum of containers; no piece under `minimum_points`
leaves or stays; nodes that hold the queue are preferred; IDLE nodes only help in below-busy when the others
can't do it, while a band spans them too; what went from A to B does not return to A within
`return_decisions`.

A heavy queue, whose two smallest pieces would fill half a node, parts evenly, into pieces of about
`minimum_points` or multiples: a piece below twice that can't be parted again, and of a queue at 5000 events/s
one of 99 points alone is TOOBUSY. It costs a few points more than the fewest.

If the limits can't be kept the worst node is minimised, and the reason names the missing capacity:
ΣL / busy - ΣC. It is then left as it is while it is within `worst_tolerance` of the best possible.

Houtman, sections 3.5.1.4 and 4.1.1.2-4.1.1.4: there a TOOBUSY node halves containers chosen at random, since
nothing knew which of them caused the load (Table 4.1; its second row should read 43.75 %, ERRATA E40). The
band is LinkedIn Cruise Control's rule for the distribution of load over brokers.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from controllers.framework.decision import Decision, Expected, Json
from controllers.framework.law import Law, Remedy, Values
from controllers.framework.parameter import Parameter
from controllers.framework.reason import NO_ACTION, are, because, counted, listed, percent
from controllers.rebalancing import relocation
from controllers.rebalancing.allocation import Allocation, Floats, from_observation
from controllers.rebalancing.greedy import MoveRules
from queues.errors import BadInput
from queues.nodes.node_state import BUSY, NORMAL, STATES
from queues.points import TOTAL

# Strictly below BUSY: a node exactly at the threshold is BUSY.
BELOW = 1 - 1e-6
MINIMUM_CONTAINERS = 2  # where none is given
NEWEST = 1  # age of the moves of this decision

PARAMETERS = (
    Parameter(
        "goal",
        "choice",
        "below-busy: fewest points until every node is below BUSY. band: fewest moves into the band.",
        "below-busy",
        kind="choice",
        choices=("below-busy", "band"),
    ),
    Parameter("busy", "share of capacity", "Load over capacity at which a node is BUSY.", 0.7, 1e-6, 1e9),
    Parameter(
        "toobusy", "share of capacity", "Load over capacity at which a node is TOOBUSY.", 0.9, 1e-6, 1e9
    ),
    Parameter(
        "minimum_containers",
        "containers",
        "A queue keeps at least this many. Not given, 2, or 1 of a single node.",
        None,
        1,
        1_000,
        "integer",
    ),
    Parameter(
        "minimum_points", "points", "No smaller piece arrives or is left behind.", 50, 1, TOTAL, "integer"
    ),
    Parameter(
        "band", "share of the mean", "In the goal band no node is above this share of the mean.", 1.09, 1, 100
    ),
    Parameter(
        "return_decisions",
        "decisions",
        "Points moved from A to B do not go back from B to A for this many decisions.",
        4,
        0,
        1_000,
        "integer",
    ),
    Parameter(
        "worst_tolerance",
        "share of the best possible",
        "If the goal can't be reached: how far above the best possible the worst node may stay.",
        0.01,
        0,
        1,
    ),
    Parameter(
        "exact_ways",
        "pairs of container and receiver",
        "Up to this size the mixed-integer program is solved; above it the greedy search decides.",
        200,
        0,
        100_000,
        "integer",
    ),
    Parameter(
        "branches", "branches", "The mixed-integer solver stops after this many.", 50, 1, 1_000_000, "integer"
    ),
)
NODE = (
    Parameter("name", "name", "The node.", kind="text", required=True),
    Parameter(
        "capacity",
        "load at utilisation 1",
        "What the thresholds are shares of.",
        minimum=1e-9,
        maximum=1e15,
        required=True,
    ),
    Parameter("drained", "flag", "Gives all it holds, gets nothing.", False, kind="flag"),
    Parameter("state", "choice", "As last reported.", NORMAL, kind="choice", choices=STATES),
    Parameter(
        "cordoned",
        "flag",
        "Keeps what it holds, gets nothing: said to be OFFLINE, but not lost.",
        False,
        kind="flag",
    ),
)
QUEUE = (
    Parameter("name", "name", "The queue.", kind="text", required=True),
    Parameter("rate", "events/s", "Events inserted per second.", maximum=1e15, required=True),
    Parameter(
        "containers",
        "points",
        "Points per node, 1000 in all.",
        kind="map",
        required=True,
        items=(Parameter("points", "points", "Points of one container.", 0, 0, TOTAL, "integer"),),
    ),
    Parameter(
        "minimum_containers", "containers", "This queue's own minimum.", None, 1, 1_000, kind="integer"
    ),
)
OBSERVATION = (
    Parameter("nodes", "rows", "All nodes of the plant.", kind="rows", required=True, items=NODE),
    Parameter("queues", "rows", "All queues of the plant.", kind="rows", required=True, items=QUEUE),
)
RECENT = (
    Parameter("queue", "name", "The queue.", kind="text", required=True),
    Parameter("from", "name", "The node that gave.", kind="text", required=True),
    Parameter("to", "name", "The node that received.", kind="text", required=True),
    Parameter("age", "decisions", "How long ago.", 0, 0, 1_000, "integer", required=True),
)
STATE = (Parameter("recent", "moves", "The last moves.", kind="rows", required=True, items=RECENT),)


def check_observation(parameters: Values, observation: Values, where: str) -> None:
    """Raise `BadInput` when nodes and queues, each in its range, contradict each other."""
    names = _different(observation["nodes"], f"{where}.nodes")
    _different(observation["queues"], f"{where}.queues")
    for at, queue in enumerate(observation["queues"]):
        _check_queue(parameters, queue, names, f"{where}.queues[{at}]")


def _check_queue(parameters: Values, queue: Values, names: Collection[str], where: str) -> None:
    for node in queue["containers"]:
        if node not in names:
            raise BadInput(f"{where}.containers.{node}", f"is no node; the nodes are {', '.join(names)}")
    total = sum(queue["containers"].values())
    if total != TOTAL:
        raise BadInput(f"{where}.containers", f"sum to {total} points; they must sum to {TOTAL}")
    minimum = queue["minimum_containers"]
    if minimum is not None and minimum > len(names):
        raise BadInput(f"{where}.minimum_containers", f"takes at most the {len(names)} nodes, not {minimum}")
    if minimum is None and (parameters["minimum_containers"] or 1) > len(names):
        raise BadInput(
            "parameters.minimum_containers",
            f"takes at most the {len(names)} nodes there are, not {parameters['minimum_containers']}",
        )


def minimum_containers(parameters: Values, observation: Values) -> int:
    """Of a queue without a minimum of its own: as given, else two, as far as there are nodes."""
    given = parameters["minimum_containers"]
    return min(MINIMUM_CONTAINERS, len(observation["nodes"])) if given is None else int(given)


def _different(rows: Sequence[Values], where: str) -> Collection[str]:
    """The names of the rows, which must be one or more and all different."""
    names = [row["name"] for row in rows]
    if not names:
        raise BadInput(where, "takes at least one")
    seen: dict[str, None] = {}
    for at, name in enumerate(names):
        if name in seen:
            raise BadInput(f"{where}[{at}].name", f"{name} is there twice; names must differ")
        seen[name] = None
    return seen


def check_thresholds(parameters: Values) -> None:
    """Raise `BadInput` unless busy is below toobusy."""
    if parameters["busy"] >= parameters["toobusy"]:
        raise BadInput(
            "parameters.busy",
            f"takes less than toobusy ({parameters['toobusy']:g}), not {parameters['busy']:g}",
        )


@dataclass(frozen=True)
class _Recent:
    """A move that was decided `age` decisions ago."""

    queue: str
    source: str
    target: str
    age: int

    def to_json(self) -> dict[str, Json]:
        return {"queue": self.queue, "from": self.source, "to": self.target, "age": self.age}


class Rebalancing:
    """The fewest points, or moves, that bring the nodes below their limit; see the module for how."""

    name = "rebalancing"
    parameters: Sequence[Parameter] = PARAMETERS
    observation: Sequence[Parameter] = OBSERVATION
    state: Sequence[Parameter] = STATE
    actuator: str | None = None
    guard_defaults: Values = {}
    remedy = Remedy("rebalance", lasts=False)

    def check(self, parameters: Values) -> None:
        """Raise `BadInput` when the thresholds are out of order or a split can't leave two pieces."""
        check_thresholds(parameters)
        if 2 * parameters["minimum_points"] > TOTAL:
            raise BadInput(
                "parameters.minimum_points",
                f"takes at most {TOTAL // 2}, so that a queue can be in two pieces, "
                f"not {parameters['minimum_points']}",
            )

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Raise `BadInput`: doubled names, containers on unknown nodes, points that don't sum to 1000, more
        minimum containers than nodes."""
        check_observation(parameters, observation, where)

    def initial_state(self, parameters: Values) -> Json:
        """No move yet."""
        return {"recent": []}

    def check_state(self, parameters: Values, state: Values, where: str) -> None:
        """Nothing to raise: what is remembered of nodes and queues that are gone does no harm."""

    def corrected(self, parameters: Values, before: Json, after: Json, action: Values | None) -> Json:
        """Without the newest moves, where they are not made: nothing has to return."""
        return {"recent": [move for move in after["recent"] if action or move["age"] > NEWEST]}

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """The cheapest moves that reach the goal; none when it is reached."""
        allocation = _allocation(parameters, observation)
        recent = [_Recent(each["queue"], each["from"], each["to"], each["age"]) for each in state["recent"]]
        search = _search(parameters, allocation, recent)
        found = relocation.find(allocation, search)
        named = allocation.named(found.moves)
        decision = _decision(parameters, allocation, search, found, named)
        return {"recent": [each.to_json() for each in _remember(parameters, recent, named)]}, decision


LAW: Law = Rebalancing()


def _allocation(parameters: Values, observation: Values) -> Allocation:
    allocation = from_observation(observation, minimum_containers(parameters, observation))
    if parameters["goal"] == "below-busy":
        return allocation
    # A band spans the idle nodes too: whoever asks for it wants everything in use.
    return replace(allocation, idle=np.zeros_like(allocation.idle))


def _search(parameters: Values, allocation: Allocation, recent: Sequence[_Recent]) -> relocation.Search:
    return relocation.Search(
        MoveRules(int(parameters["minimum_points"]), _returns(allocation, recent)),
        _limits(parameters, allocation),
        "points" if parameters["goal"] == "below-busy" else "moves",
        int(parameters["exact_ways"]),
        int(parameters["branches"]),
        float(parameters["worst_tolerance"]),
    )


def _limits(parameters: Values, allocation: Allocation) -> Floats:
    if parameters["goal"] == "below-busy":
        return allocation.capacity * float(parameters["busy"] * BELOW)
    capacity = float(allocation.capacity[allocation.available].sum())
    mean = float(allocation.loads.sum()) / capacity if capacity else 0.0
    # Where nothing flows every node is in the band; a limit of 0 could not be divided by.
    return allocation.capacity * max(float(parameters["band"]) * mean, 1e-12)


def _returns(allocation: Allocation, recent: Sequence[_Recent]) -> frozenset[tuple[int, int, int]]:
    """What would undo a recent move; a drained node may send back, since it has to be emptied."""
    queues = {name: index for index, name in enumerate(allocation.queues)}
    nodes = {name: index for index, name in enumerate(allocation.nodes)}
    known = [move for move in recent if move.queue in queues and {move.source, move.target} <= nodes.keys()]
    back = ((queues[move.queue], nodes[move.target], nodes[move.source]) for move in known)
    return frozenset(way for way in back if not allocation.drained[way[1]])


def _remember(
    parameters: Values, recent: Sequence[_Recent], named: Sequence[Mapping[str, Any]]
) -> list[_Recent]:
    older = [_Recent(move.queue, move.source, move.target, move.age + 1) for move in recent]
    newest = [_Recent(move["queue"], move["from"], move["to"], NEWEST) for move in named]
    return [move for move in older + newest if move.age <= parameters["return_decisions"]]


def _decision(
    parameters: Values,
    allocation: Allocation,
    search: relocation.Search,
    found: relocation.Relocation,
    named: list[dict[str, Any]],
) -> Decision:
    after = allocation.after(found.moves)
    terms = _terms(parameters, allocation, after, search, found)
    cause = _why(parameters, allocation, search, found, terms)
    reason = because(_what(named), cause, remarks=_remarks(terms))
    limited_by = None if found.feasible else "capacity" if terms["missing_capacity"] else "rules"
    if not named:
        return Decision(None, reason, terms, limited_by)
    loads = {"load_before": terms["load_before"], "load_after": terms["load_after"]}
    gain = terms["worst_before"] - terms["worst_after"]
    expected = Expected("worst_utilisation", "down", gain, 60.0) if gain > 0 else None
    return Decision({"moves": named, **loads}, reason, terms, limited_by, expected=expected)


def _terms(
    parameters: Values,
    before: Allocation,
    after: Allocation,
    search: relocation.Search,
    found: relocation.Relocation,
) -> dict[str, Any]:
    worst_before, worst_after = (_worst(each) for each in (before, after))
    return {
        "load_before": before.by_name(before.loads),
        "load_after": after.by_name(after.loads),
        "limit": before.by_name(search.limits),
        "worst_before": worst_before,
        "worst_after": worst_after,
        "points_moved": relocation.points_of(found.moves),
        "moves": len(found.moves),
        "containers_before": sum(len(held) for held in before.points),
        "containers_after": sum(len(held) for held in after.points),
        "missing_capacity": _missing(parameters, before),
        "returns_barred": len(search.rules.returns),
    }


def _worst(allocation: Allocation) -> float:
    """The greatest utilisation among the nodes that are heard."""
    heard = ~allocation.offline
    return float((allocation.loads / allocation.capacity)[heard].max()) if heard.any() else 0.0


def _missing(parameters: Values, allocation: Allocation) -> float:
    """Capacity that would have to be added so that every node could be below BUSY."""
    have = float(allocation.capacity[allocation.available].sum())
    needed = float(allocation.loads.sum()) / float(parameters["busy"] * BELOW)
    return round(max(0.0, needed - have), 6)


def _why(
    parameters: Values,
    allocation: Allocation,
    search: relocation.Search,
    found: relocation.Relocation,
    terms: Mapping[str, Any],
) -> str:

    limit = BUSY if parameters["goal"] == "below-busy" else f"{parameters['band']:g} times the mean"
    if not found.feasible:
        missing = terms["missing_capacity"]
        rules = "the rules for containers, pieces and returns forbid it"
        why = f"a capacity of {missing:g} is missing" if missing else rules
        return f"not every node can be below {limit}, since {why}"
    to_empty = allocation.drained & ~allocation.offline & [bool(held) for held in allocation.at_node]
    over = (allocation.loads > search.limits) & allocation.available
    causes = [
        f"{listed(names)} {are(names)} {what}"
        for chosen, what in ((to_empty, "drained"), (over, f"over {limit}"))
        if (names := [allocation.nodes[node] for node in np.flatnonzero(chosen)])
    ]
    return "; ".join(causes) or f"every node is below {limit}"


def _remarks(terms: Mapping[str, Any]) -> list[str]:
    before, after = percent(terms["worst_before"]), percent(terms["worst_after"])
    change = before if before == after else f"{before} → {after}"
    return [f"worst node: {change} of its capacity"]


def _what(named: Sequence[Mapping[str, Any]]) -> str:
    """The action in words: one move with its nodes, of several how many and their sum."""
    if not named:
        return NO_ACTION
    points = counted(sum(move["points"] for move in named), "point")
    if len(named) == 1:
        return f"Move {points} of {named[0]['queue']} {named[0]['from']} → {named[0]['to']}"
    return f"Move {points} in {len(named)} moves"
