"""The node scaling law: it takes idle nodes into use, releases unneeded nodes, and restores lost points.

With the load L_n, the capacity C_n, and U the nodes in use (not IDLE, drained, or OFFLINE):

    use       if more than `majority` of U are BUSY or TOOBUSY (section 3.5.1.5), or forecast * ΣL is over
              fill * busy * Σ_U C; then the most capable idle nodes, until neither is true
    release   if forecast * ΣL ≤ margin * busy * Σ C of the rest, for `quiet_decisions` in a row: the least
              capable, among equals the least loaded. 4.1.1.3 requires this: the set of remaining nodes
              differed randomly every night. `keep_share` of the nodes always stays, and as many as a queue
              needs for its minimum of containers
    restore   if a node was OFFLINE for `lost_decisions` in a row: its points go to the queue's other
              holders in proportion to theirs, as the splitter already diverts its load; a queue with fewer
              containers than its minimum gets new ones on the least loaded nodes (3.5.1.6, which the
              thesis left undone: 4.1.1.7)

A decision does one of these: it restores, else uses, else releases. It releases only the first node
(`release_at_once`), because a plan empties one node.

While events are `held_back` from the plant, for example by a paused queue, a low load proves nothing: no node is
released, and the count of decisions starts again afterwards.

Proposals that were not approved on the same plant are `declined` and not proposed again.

`forecast` is the highest load expected until the next decision, over the current load, and `forecast_at` its time.
Without a forecast (`forecast_missing` says why) only the current load counts. `rebalancing`
empties a released node as if it were drained; the node is IDLE afterwards.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from common.errors import BadInput
from common.parameter import value
from controllers.framework.decision import Decision
from controllers.framework.law import Law, Remedy
from controllers.framework.reason import (
    NO_ACTION,
    are,
    capitalize,
    format_count,
    format_expected,
    format_names,
    format_reason,
    measure,
)
from controllers.rebalancing.allocation import (
    Allocation,
    CapacitySource,
    Flags,
    IndexedMove,
    PlantObservation,
    from_observation,
)
from controllers.rebalancing.law import check_plant, check_thresholds, compute_minimum_containers
from queues.points import TOTAL, apportion

ACTS = ("use", "release", "restore")


class NodeScalingParameters(msgspec.Struct, frozen=True, kw_only=True):
    busy: Annotated[float, value("share of capacity", "Load over capacity from which a node is BUSY.", 1e-6, 1e9)] = 0.7
    toobusy: Annotated[
        float, value("share of capacity", "Load over capacity from which a node is TOOBUSY.", 1e-6, 1e9)
    ] = 0.9
    capacity: CapacitySource = "measured"
    majority: Annotated[
        float, value("share of nodes in use", "Share of busy nodes above which Weir starts to use idle nodes.", 0, 1)
    ] = 0.5
    fill: Annotated[
        float,
        value(
            "share of BUSY",
            "Load of the nodes in use, as a share of BUSY, above which Weir starts to use idle nodes.",
            0.01,
            1,
        ),
    ] = 0.95
    margin: Annotated[
        float, value("share of BUSY", "Maximum load of the remaining nodes after a release.", 0.01, 1)
    ] = 0.93
    keep_share: Annotated[
        float,
        value(
            "share of available nodes",
            "Minimum share of nodes in use. It limits the moves of points when the load returns.",
            0,
            1,
        ),
    ] = 0.35
    quiet_decisions: Annotated[
        int, value("decisions", "Number of decisions in a row for which a release must be possible.", 1, 1_000)
    ] = 2
    lost_decisions: Annotated[
        int, value("decisions", "Number of decisions in a row after which an OFFLINE node counts as lost.", 1, 1_000)
    ] = 2
    minimum_containers: Annotated[
        int | None,
        value(
            "containers",
            "Minimum number of containers of a queue, and so of nodes. Default: 2, or 1 on a single node.",
            1,
            1_000,
        ),
    ] = None


class NodeScalingObservation(PlantObservation, frozen=True, kw_only=True):
    forecast: Annotated[float, value("share of the load now", "Expected load.", 0, 1_000.0)] = 1.0
    forecast_missing: Annotated[str | None, value("text", "Why the load of some queues is not forecast.")] = None
    held_back: Annotated[
        bool,
        value("flag", "True: events are held back, for example by a paused queue, so the load is lower than usual."),
    ] = False
    declined: Annotated[
        dict[str, Annotated[bool, value("flag", "True: not approved.")]],
        value("flag", "Actions (use, release, restore) that were proposed for the same plant state and not approved."),
    ] = {}


class NodeScalingState(msgspec.Struct, frozen=True, kw_only=True):
    quiet: Annotated[
        int, value("decisions", "Number of decisions for which a release has been possible.", 0, 1e9, required=True)
    ] = 0
    lost: Annotated[
        dict[str, Annotated[int, value("decisions", "Decisions in a row.", 0, 1e9)]],
        value("decisions", "Number of decisions for which each node has been OFFLINE.", required=True),
    ] = {}


class NodeScaling(Law[NodeScalingParameters, NodeScalingObservation, NodeScalingState]):
    """Use as many nodes as the load needs; release weaker nodes first. See the module for the rules."""

    name = "node_scaling"
    Parameters, Observation, State = NodeScalingParameters, NodeScalingObservation, NodeScalingState
    remedy = Remedy("nodes", lasts=False)

    def __init__(self, release_at_once: int | None = 1) -> None:
        """Create the law. release_at_once: the maximum of nodes that a decision releases; None: all unneeded nodes."""
        self.release_at_once = release_at_once

    def check(self, parameters: NodeScalingParameters) -> None:
        """Raise `BadInput` if the thresholds are in the wrong order, or margin exceeds fill."""
        check_thresholds(parameters.busy, parameters.toobusy)
        if parameters.margin > parameters.fill:
            raise BadInput(
                "parameters.margin", f"must be at most fill ({parameters.fill:g}), not {parameters.margin:g}"
            )

    def check_observation(
        self, parameters: NodeScalingParameters, observation: NodeScalingObservation, where: str
    ) -> None:
        check_plant(parameters.minimum_containers, observation, where)
        for name in observation.declined:
            if name not in ACTS:
                raise BadInput(f"{where}.declined.{name}", f"must be one of {', '.join(ACTS)}")

    def decide(
        self, parameters: NodeScalingParameters, state: NodeScalingState, observation: NodeScalingObservation
    ) -> tuple[NodeScalingState, Decision]:
        """Return the nodes to use and release and the moves to restore; never both use and release."""
        least = compute_minimum_containers(parameters.minimum_containers, observation)
        plant = from_observation(observation, least, parameters.capacity)
        kept = {node.name for node in observation.nodes if node.cordoned}
        lost = {
            name: state.lost.get(name, 0) + 1
            for name, offline in zip(plant.nodes, plant.offline, strict=True)
            if offline and name not in kept
        }
        gone = [name for name, decisions in lost.items() if decisions >= parameters.lost_decisions]
        forecast = observation.forecast
        declined = {name for name, flag in observation.declined.items() if flag}
        restore = find_restoring_moves(plant, [plant.nodes.index(name) for name in gone])
        restores = bool(restore) and "restore" not in declined
        use = [] if restores else _to_use(parameters, plant, forecast)
        keeps_all = use or gone or restores or observation.held_back
        release = [] if keeps_all else _to_release(parameters, plant, forecast, least)
        quiet = state.quiet + 1 if release else 0
        is_due = quiet >= parameters.quiet_decisions
        due = [plant.nodes[node] for node in release[: self.release_at_once]] if is_due else []
        acts = _Acts([plant.nodes[node] for node in use], due, restore)
        decision = _build_decision(parameters, plant, observation, acts, declined)
        return NodeScalingState(quiet=0 if due else quiet, lost=lost), decision


LAW = NodeScaling()


def _list_used_nodes(plant: Allocation) -> Flags:
    return plant.available & ~plant.idle


def _compute_needed_capacity(parameters: NodeScalingParameters, plant: Allocation, forecast: float) -> float:
    """Return the capacity that carries the expected load without any BUSY node."""
    return float(plant.loads.sum()) * forecast / parameters.busy


def _to_use(parameters: NodeScalingParameters, plant: Allocation, forecast: float) -> list[int]:
    """Return the idle nodes to take into use, the most capable first."""
    used = _list_used_nodes(plant)
    idle = [int(node) for node in np.flatnonzero(plant.available & plant.idle)]
    busy = int((used & (plant.loads >= parameters.busy * plant.capacity)).sum())
    have, needed = float(plant.capacity[used].sum()), _compute_needed_capacity(parameters, plant, forecast)
    majority = busy > parameters.majority * int(used.sum())
    taken: list[int] = []
    for node in sorted(idle, key=lambda node: (-plant.capacity[node], node)):
        if parameters.fill * have > needed and not (majority and not taken):
            break
        taken.append(node)
        have += float(plant.capacity[node])
    return taken


def _to_release(parameters: NodeScalingParameters, plant: Allocation, forecast: float, least: int) -> list[int]:
    """Return the unneeded nodes, the least capable first, among equals the least loaded."""
    used = [int(node) for node in np.flatnonzero(_list_used_nodes(plant))]
    kept = int(parameters.keep_share * int(plant.available.sum()))
    keep = max([least, kept, *plant.minimum])
    needed = _compute_needed_capacity(parameters, plant, forecast)
    rest, released = float(plant.capacity[used].sum()), list[int]()
    for node in sorted(used, key=lambda node: (plant.capacity[node], _heaviest(plant, node), node)):
        rest -= float(plant.capacity[node])
        if len(used) - len(released) <= keep or needed > parameters.margin * rest:
            break
        released.append(node)
    return released


def _heaviest(plant: Allocation, node: int) -> tuple[float, float]:
    """Return the load of the heaviest container and of the node; small pieces are easiest to place."""
    loads = (plant.rate_per_point[queue] * points for queue, points in plant.at_node[node].items())
    return max(loads, default=0.0), float(plant.loads[node])


def find_restoring_moves(plant: Allocation, gone: Collection[int]) -> list[IndexedMove]:
    """Return moves that restore the points of lost nodes and each queue's minimum of containers.

    A queue below its minimum without points to restore (its nodes came back, or nodes were added) redistributes its
    points: each new container gets an equal part of all its points.
    """
    moves: list[IndexedMove] = []
    loads, gone = plant.loads.copy(), frozenset(gone)
    for queue, held in enumerate(plant.points):
        lost = {node: points for node, points in held.items() if node in gone}
        heard = {node: float(points) for node, points in held.items() if plant.available[node]}
        fresh = _choose_new_nodes(plant, loads, heard, plant.minimum[queue]) if held else []
        # Only if all points are on nodes that may keep them: a plan moves those of a drained node.
        if fresh and sum(heard.values()) == TOTAL:
            moves += _share_out(queue, held, heard, fresh)
        for node, points in lost.items():
            targets = dict.fromkeys(fresh, 1.0) or heard
            if targets:
                shares = apportion(points, {str(target): weight for target, weight in targets.items()})
                moves += [IndexedMove(queue, node, int(to), share) for to, share in shares.items() if share]
        for node in fresh:
            loads[node] += plant.rate[queue] / max(1, len(heard) + len(fresh))
    return moves


def _share_out(
    queue: int, held: Mapping[int, int], heard: Mapping[int, float], fresh: Sequence[int]
) -> list[IndexedMove]:
    wanted = TOTAL // (len(heard) + len(fresh)) * len(fresh)
    given = apportion(wanted, {str(node): points for node, points in heard.items()})
    targets = {str(node): 1.0 for node in fresh}
    return [
        IndexedMove(queue, int(node), int(to), share)
        for node, points in given.items()
        for to, share in apportion(min(points, held[int(node)]), targets).items()
        if share
    ]


def _choose_new_nodes(
    plant: Allocation, loads: NDArray[np.float64], heard: Mapping[int, float], minimum: int
) -> list[int]:
    """Return the least loaded nodes that get a new container, so that the queue has its minimum again."""
    missing = minimum - len(heard)
    if missing <= 0:
        return []
    free = plant.available.copy()
    free[list(heard)] = False
    nodes = np.flatnonzero(free)
    by_load = np.argsort(loads[nodes] / plant.capacity[nodes], kind="stable")
    return [int(node) for node in nodes[by_load[:missing]]]


@dataclass(frozen=True)
class _Acts:
    """The nodes to use and to release, and the moves that restore points; in the order of ACTS."""

    use: list[str]
    release: list[str]
    restore: list[IndexedMove]

    @property
    def points(self) -> str:
        return format_count(sum(move.points for move in self.restore), "point")


def _build_decision(
    parameters: NodeScalingParameters,
    plant: Allocation,
    observation: NodeScalingObservation,
    proposed: _Acts,
    declined: set[str],
) -> Decision:
    acts = replace(proposed, **{name: [] for name in ACTS if name in declined})
    used, idle = _list_used_nodes(plant), plant.available & plant.idle
    needed = _compute_needed_capacity(parameters, plant, observation.forecast)
    have = float(plant.capacity[used].sum())
    # Only capacity that could still be added counts: without idle nodes the plant itself is too small.
    short = needed > have + float(plant.capacity[idle].sum())
    terms = {
        "load": round(float(plant.loads.sum()), 6),
        "forecast": observation.forecast,
        "needed_capacity": round(needed, 6),
        "used_capacity": round(have, 6),
        "nodes_used": int(used.sum()),
        "nodes_idle": int(idle.sum()),
        "points_restored": sum(move.points for move in acts.restore),
    }
    acted = bool(acts.use or acts.release or acts.restore)
    lost = sorted({plant.nodes[move.source] for move in acts.restore if plant.offline[move.source]})
    again = [name for name in ACTS if name in declined and getattr(proposed, name)]
    if again and not acted:
        what = proposed.points if again[0] == "restore" else format_names(getattr(proposed, again[0]))
        why = f"{f'{again[0]} {what}'!r} was proposed before and not approved, and nothing has changed since"
    elif lost:
        why = f"{format_names(lost)} {are(lost)} OFFLINE and lost"
    elif acts.restore:
        why = "a queue is below its minimum of containers"
    else:
        needs, has = measure(round(needed, 6)), measure(round(have, 6))
        load = "the current load"
        if observation.forecast_at is not None:
            load = format_expected(observation.forecast_at, observation.forecast)
        of = f"node {format_names(acts.use)}: " if len(acts.use) == 1 else "the nodes: " if acts.use else ""
        why = f"{load} needs {of}a capacity of {needs}, and {has} is in use"
        if acts.release:
            why = f"{why}; the other nodes suffice without {format_names(acts.release)}"
    parts = [
        *([f"use {format_names(acts.use)}"] if acts.use else []),
        *([f"release {format_names(acts.release)}"] if acts.release else []),
        *([f"restore {acts.points} of lost nodes"] if acts.restore else []),
    ]
    remarks = [
        f"nodes in use: {int(used.sum())}, idle: {int(idle.sum())}",
        *(["events are held back, so no node is released"] if observation.held_back else []),
        *(["the plant is too small"] if short else []),
        *([f"without a forecast of {observation.forecast_missing}"] if observation.forecast_missing else []),
    ]
    reason = format_reason(capitalize(", ".join(parts)) if parts else NO_ACTION, why, remarks=remarks)
    action = {"use": acts.use, "release": acts.release, "restore": plant.name_moves(acts.restore)}
    return Decision(action if acted else None, reason, terms, "nodes" if short else None)
