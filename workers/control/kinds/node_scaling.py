"""The set of nodes in use. One loop controls the whole plant; after an action the plant settles first."""

from collections.abc import Mapping
from typing import Any

from controllers.parallelism.advice_value import AdvisedOperator
from controllers.rebalancing.node_scaling import LAW
from workers.control.parts import kind
from workers.control.parts.points import build_plant_target, move_points, propose
from workers.models import Loop
from workers.placement.plant_sensors import NODE_SCALING_SECONDS, compute_readings, list_declined, observe_node_scaling

INTERVAL_SECONDS, COOLDOWN_SECONDS = NODE_SCALING_SECONDS


def list_targets(present: kind.PlantInventory) -> kind.Targets:
    return build_plant_target(LAW.name)


def _nodes_gained(action: Mapping[str, Any]) -> float:
    return float(len(action.get("use", ())) - len(action.get("release", ())))


def _list_advised_nodes(
    observed: Mapping[str, Any], action: Mapping[str, Any], terms: Mapping[str, Any]
) -> dict[str, AdvisedOperator]:
    used = int(terms["nodes_used"])
    return {"plant": AdvisedOperator(tasks=used, advised=used + int(_nodes_gained(action)))}


def _describe_action(action: Mapping[str, Any]) -> str:
    parts = (("added", action.get("use")), ("released", action.get("release")))
    done = [f"{verb} {', '.join(nodes)}" for verb, nodes in parts if nodes]
    return " and ".join(done) or "restored points"


KIND = kind.LoopKind(
    law=LAW,
    sensor=observe_node_scaling,
    readings=compute_readings,
    actuator=move_points,
    proposer=propose,
    recall=list_declined,
    targets=list_targets,
    interval_seconds=INTERVAL_SECONDS,
    # The loop advises until a person trusts it: releasing a node requires a plan, and it is not urgent.
    defaults=kind.LoopDefaults(Loop.Mode.ADVISE, {"quiet_decisions": 10}, {"cooldown_seconds": COOLDOWN_SECONDS}),
    seeded=True,
    tuning=kind.LoopTuning(advice=kind.AdviceMeasure("node", _list_advised_nodes)),
    display=kind.Display(
        # Its setpoint is a share of capacity and its measured value a number of nodes: they share no axis.
        kind.Lanes("Nodes in use", "Points moved", "moved", has_reference=False),
        of_each="plant",
        purpose=(
            "Uses as many nodes as the load requires, releases idle nodes, and restores the points of lost nodes."
        ),
        formula=(
            "add a node while the expected load > fill · busy of the nodes in use; release a node while the others "
            "stay below margin · busy for quiet_decisions"
        ),
        main=("busy", "fill", "margin", "quiet_decisions", "lost_decisions"),
        topics=(("Limits", ("capacity", "toobusy", "majority", "keep_share", "minimum_containers")),),
        measured="terms.nodes_used",
        setpoints=("busy",),
        amount=_nodes_gained,
        past=_describe_action,
        brief=_describe_action,
        changes="the nodes in use",
    ),
)
