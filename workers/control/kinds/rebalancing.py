"""The points of each queue on each node.

One loop controls the whole plant; after an action the plant settles first.
"""

from collections.abc import Mapping
from typing import Any

from controllers.rebalancing.law import LAW
from workers.control.parts.kind import Display, Lanes, LoopDefaults, LoopKind, LoopTuning, PlantInventory, Targets
from workers.control.parts.points import build_plant_target, move_points, propose
from workers.placement.plant_sensors import REBALANCING_SECONDS, compute_readings, observe_rebalancing

INTERVAL_SECONDS, COOLDOWN_SECONDS = REBALANCING_SECONDS


def list_targets(present: PlantInventory) -> Targets:
    return build_plant_target(LAW.name)


def _count_moved_points(action: Mapping[str, Any]) -> int:
    return sum(move["points"] for move in action.get("moves", ()))


def _list_moved_queues(action: Mapping[str, Any]) -> str:
    return f"moved {_count_moved_points(action)} points"


def _from_to(action: Mapping[str, Any]) -> str:
    """Describe only how many points move between which nodes."""
    moves = action.get("moves", ())
    nodes = [", ".join(sorted({move[end] for move in moves})) for end in ("from", "to")]
    return f"{_count_moved_points(action):,} points: {nodes[0]} → {nodes[1]}" if moves else ""


KIND = LoopKind(
    law=LAW,
    sensor=observe_rebalancing,
    readings=compute_readings,
    actuator=move_points,
    proposer=propose,
    targets=list_targets,
    interval_seconds=INTERVAL_SECONDS,
    # The lab decides every 15 minutes. The loop decides after a minute, so it can move fewer points at a time.
    defaults=LoopDefaults(parameters={"minimum_points": 20}, guard={"cooldown_seconds": COOLDOWN_SECONDS}),
    seeded=True,
    display=Display(
        Lanes("Busiest node, % of capacity", "Points moved", "moved", scale=100.0, bounded=True),
        of_each="plant",
        purpose=(
            "Moves points between nodes until every node is below BUSY, now and at the load that is expected until the "
            "next decision, or within a band of the mean load."
        ),
        formula=(
            "minimize Σ points moved such that load_n < busy · capacity_n for every node; in "
            "band: minimize Σ moves such that load_n ≤ band · mean"
        ),
        main=("goal", "busy", "toobusy", "band", "minimum_points"),
        topics=(
            ("Placement", ("capacity", "minimum_containers", "return_decisions")),
            ("Solver", ("worst_tolerance", "exact_ways", "branches")),
        ),
        measured="terms.worst_before",
        setpoints=("busy",),
        amount=_count_moved_points,
        past=_list_moved_queues,
        brief=_from_to,
        changes="points",
    ),
    tuning=LoopTuning(scenario="queues"),
)
