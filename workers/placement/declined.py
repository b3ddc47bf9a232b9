"""What node scaling has proposed and nobody has approved: people are not asked the same again.

A proposal counts as declined while it waits, and after it was rejected, expired, or void, until the plant has changed:
its nodes, which of them are present, the points, or the load by more than `LOAD_CHANGE` of what is in use and a quarter
of what it was.
"""

from collections.abc import Mapping
from typing import Any

from controllers.rebalancing.node_scaling import ACTS
from queues.nodes.node_state import OFFLINE
from workers.models import Loop, Plan

NOT_APPROVED = (Plan.State.PROPOSED, Plan.State.REJECTED, Plan.State.VOID)
LOAD_CHANGE = 0.1
LOAD_RATIO = 1.25
Observation = Mapping[str, Any]


def list_declined(loop: Loop, mode: str, observation: Observation) -> dict[str, Any]:
    """Return {"declined": {act: True}} of an advising loop; a loop that acts automatically asks nobody."""
    if mode != Loop.Mode.ADVISE:
        return {}
    declined_acts = {act: True for act in ACTS if _is_declined(loop.law, act, observation)}
    return {"declined": declined_acts}


def _is_declined(law: str, kind: str, observation: Observation) -> bool:
    made = Plan.objects.filter(law=law, kind=kind, owner=None).select_related("entry").order_by("-pk").first()
    if made is None or made.state not in NOT_APPROVED or made.entry is None:
        return False
    return not has_changed(made.entry.observation, observation)


def has_changed(before: Observation, now: Observation) -> bool:
    """Return whether the plant that node scaling observed differs so that another answer may be given."""
    if _extract_plant_shape(before) != _extract_plant_shape(now):
        return True
    loads = sorted(sum(float(queue["rate"]) for queue in plant["queues"]) for plant in (before, now))
    capacity = sum(float(node["capacity"]) for node in now["nodes"])
    return loads[1] - loads[0] > LOAD_CHANGE * capacity and loads[1] > LOAD_RATIO * loads[0]


def _extract_plant_shape(observation: Observation) -> Any:
    """Return what of a plant does not depend on its load: present nodes, and points."""
    nodes = sorted(
        (node["name"], node["capacity"], node["drained"], node["state"] == OFFLINE) for node in observation["nodes"]
    )
    return nodes, sorted((queue["name"], sorted(queue["containers"].items())) for queue in observation["queues"])
