"""Manual changes that are no override of a loop.

They are values set by a person or another controller, while in force.
"""

from collections.abc import Iterator, Mapping

from controllers.framework.reason import format_number
from workers.documents.loops import ManualChange
from workers.documents.pipeline import PipelineOrder
from workers.documents.snapshot import Snapshot


def list_manual_changes(
    snapshot: Snapshot, caps: Mapping[str, str], orders: Mapping[str, PipelineOrder]
) -> list[ManualChange]:
    """Return the manual changes, the earliest end first.

    caps: of limited remedy ladders, by queue; orders: people's orders for applications.
    """
    changes = [
        *_iterate_task_changes(snapshot),
        *_iterate_criteria_changes(snapshot),
        *_list_stops(orders),
        *_iterate_cap_changes(caps),
        *_iterate_drains(snapshot),
    ]
    return sorted(changes, key=lambda hand: (hand.until is None, hand.until or 0.0, hand.of))


def _iterate_task_changes(snapshot: Snapshot) -> Iterator[ManualChange]:
    """Return the tasks set by other controllers, during which the parallelism loops hold."""
    holders = {snapshot.plant: snapshot.steered_by}
    holders |= {name: row.steered_by for name, row in snapshot.plants.items()}
    for plant, holder in holders.items():
        if holder is not None:
            value, owner = "parallelism loops on hold", holder.holder or ""
            yield ManualChange(kind="tasks", of=f"plant/{plant}", value=value, owner=owner, until=holder.until)


def _iterate_criteria_changes(snapshot: Snapshot) -> Iterator[ManualChange]:
    now = snapshot.at or 0.0
    for application, row in snapshot.pipeline.applications.items():
        for name, held in row.controls.held_criteria.items():
            if held.until_seconds is None or held.until_seconds > now:
                yield ManualChange(
                    kind="criterion",
                    of=f"application/{application}",
                    value=f"{name} = {format_number(held.value)}",
                    owner=held.owner,
                    reason=held.reason,
                    until=held.until_seconds,
                )


def _list_stops(orders: Mapping[str, PipelineOrder]) -> Iterator[ManualChange]:
    for application, order in orders.items():
        if order.stopped:
            yield ManualChange(
                kind="stop",
                of=f"application/{application}",
                value="events stay in their queues",
                owner=order.by,
                reason=order.reason,
            )


def _iterate_cap_changes(caps: Mapping[str, str]) -> Iterator[ManualChange]:
    for queue, cap in caps.items():
        yield ManualChange(kind="ladder cap", of=f"queue/{queue}", value=f"up to {cap.replace('_', ' ')}")


def _iterate_drains(snapshot: Snapshot) -> Iterator[ManualChange]:
    for name, node in snapshot.nodes.items():
        if node.drained:
            yield ManualChange(kind="drain", of=f"node/{name}", value="accepts no points")
        elif node.cordoned:
            yield ManualChange(kind="cordon", of=f"node/{name}", value="accepts no new work")
