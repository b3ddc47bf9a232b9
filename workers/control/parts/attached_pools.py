"""Observations and actions of the kinds that size one pool of an attached plant.

Their target is {"plant", "operator"}.

A loop of a pool holds while the plant is not visible, while another controller sets its tasks, after an order that had
no effect, and, where the loop is to act, while another loop acts on the same tasks: that of the whole plant, or the one
whose law comes first by name. Two such loops are never both allowed to act (`workers.steering.scope`); this check
is for unrequested changes, such as a pool that reappears.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controllers.framework.guard import ObservationQuality
from controllers.parallelism import inputs
from controllers.parallelism.measured_topology import MeasuredOperator
from workers.control.parts.kind import LoopStart, PlantInventory
from workers.control.parts.operators import describe_holder, open_elastic
from workers.documents.plants import PlantHolder, PlantStatus
from workers.documents.snapshot import Snapshot
from workers.models import Loop
from workers.plants.foreign.adapters import list_kinds
from workers.plants.foreign.kind import MAX_POOLS, AdapterKind
from workers.plants.orders import explain_unreached
from workers.plants.plant import Plant
from workers.plants.reached import PENDING
from workers.plants.registry import explain_unseen
from workers.steering.scope import list_active_loops, meet

GONE = "the pool no longer exists or cannot be resized"
# The maximum length of a loop's name; names of plants and workers may be longer.
MAX_NAME, DIGEST_CHARACTERS = 120, 8
Target = Mapping[str, Any]


@dataclass(frozen=True)
class ObservedPool:
    """The operator of a target in a snapshot.

    It has the operator's measures over `window_seconds`, the wait of its arrivals (None: unknown), and its plant's row.
    """

    operator: MeasuredOperator
    window_seconds: float
    wait_seconds: float | None
    row: PlantStatus

    @property
    def tasks(self) -> int:
        return self.operator.parallelism

    @property
    def coming(self) -> int:
        """Return the current number of tasks, or the larger ordered number."""
        order = self.row.orders.get(self.operator.name)
        return max(self.tasks, order.tasks if order is not None and order.state == PENDING else 0)

    @property
    def rate_per_second(self) -> float | None:
        """Return the operator's arrival rate."""
        return inputs.compute_rate_per_second(self.operator, self.window_seconds)

    @property
    def service_seconds(self) -> float | None:
        """Return the time that one task takes for one event."""
        return inputs.compute_service_seconds(self.operator)

    @property
    def waiting_events(self) -> float:
        """Return the number of events that wait for the operator."""
        return inputs.estimate_waiting_events(self.operator, self.window_seconds, self.wait_seconds)

    @property
    def ends_idle(self) -> bool:
        """Return whether only idle tasks are stopped."""
        kind = list_kinds().get(self.row.kind)
        return kind is not None and kind.ends_idle


def find_pool(target: Target, snapshot: Snapshot) -> ObservedPool | None:
    """Return the pool, or None where it is not visible.

    Only this pool of a topology of possibly hundreds is parsed: the observer has validated all of it.
    """
    row = snapshot.plants.get(target.get("plant", ""))
    if row is None or row.topology is None or row.state != "seen":
        return None
    name = target.get("operator", "")
    operator_row = row.topology["operators"].get(name)
    if operator_row is None:
        return None
    operator = MeasuredOperator(name=name, **{**operator_row, "tasks": tuple(operator_row["tasks"])})
    waits = [link["latency_seconds"] for link in row.topology["links"] if link["target"] == name]
    known = [wait for wait in waits if wait is not None]
    return ObservedPool(operator, row.topology["window_seconds"], max(known, default=None), row)


def check_measurement(law: str, target: Target, snapshot: Snapshot, now_seconds: float) -> ObservationQuality:
    """Return the age of the observation, and why a loop of this law cannot use it."""
    if snapshot.at is None:
        return ObservationQuality(None, "no snapshot yet")
    age, name = abs(now_seconds - snapshot.at), str(target.get("plant"))
    row, pool = snapshot.plants.get(name), find_pool(target, snapshot)
    if row is None:
        return ObservationQuality(age, f"plant {name} is not registered")
    if row.error or row.state != "seen":
        return ObservationQuality(age, explain_unseen(name, row))
    if pool is None:
        return ObservationQuality(age, f"plant {name} has no operator {target.get('operator')}")
    if pool.operator.fixed is not None:
        return ObservationQuality(age, f"the tasks of {target['operator']} cannot be set: {pool.operator.fixed}")
    topology = row.topology or {}
    there = PlantHolder(holder=topology.get("holder"), until=topology.get("held_until"))
    return ObservationQuality(
        age,
        explain_unreached(row),
        describe_holder(target, snapshot, there) or _describe_prior_loop(law, target, snapshot),
    )


def _describe_prior_loop(law: str, target: Target, snapshot: Snapshot) -> str | None:
    """Return a sentence about the loop that acts on these tasks with precedence over this law's loop.

    A loop that only advises has no other before it.
    """
    own = snapshot.loops.get(build_loop_name(law, target["plant"], target["operator"]))
    if own is None or own.mode not in Loop.ACTING:
        return None
    for name, loop in sorted(snapshot.loops.items()):
        is_before = "operator" not in loop.target or loop.law < law
        if loop.law != law and is_before and loop.mode in Loop.ACTING and meet(target, loop.target):
            return f"loop {name} (mode {loop.mode}) already controls the tasks"
    return None


def iterate_adjustable_pools(
    law: str, present: PlantInventory, of_kind: Callable[[AdapterKind], bool]
) -> Iterator[tuple[str, str, str, AdapterKind]]:
    """Return (loop name, plant, operator, kind) of the adjustable pools of such plants.

    There are up to MAX_POOLS per plant. For a plant that is not visible, the pools that had a loop are returned.
    """
    for plant, kind in present.plants.items():
        if of_kind(kind):
            for operator in _list_operators(law, plant, present.snapshot)[:MAX_POOLS]:
                yield build_loop_name(law, plant, operator), plant, operator, kind


def _list_operators(law: str, plant: str, snapshot: Snapshot) -> list[str]:
    row = snapshot.plants.get(plant)
    if row is None or row.topology is None or row.state != "seen":
        loops = list_active_loops().filter(law=law, target__plant=plant)
        return sorted(loop.target["operator"] for loop in loops)
    rows = row.topology["operators"].items()
    return sorted(name for name, row in rows if row["kind"] == "operator" and row["fixed"] is None)


def find_visible_pool(plant: str, operator: str, present: PlantInventory) -> ObservedPool | None:
    """Return the pool, or None where it is not visible now."""
    return find_pool({"plant": plant, "operator": operator}, present.snapshot)


def build_loop_name(law: str, plant: str, operator: str) -> str:
    """Return the loop's name; a name that is too long ends with a digest of the whole."""
    name = f"{law}/plant:{plant}/{operator}"
    if len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:DIGEST_CHARACTERS]
    return f"{name[: MAX_NAME - DIGEST_CHARACTERS - 1]}~{digest}"


def start_of(plant: str, operator: str, **more: Any) -> LoopStart:
    """Return the start of one pool's loop, in advise."""
    return LoopStart({"plant": plant, "operator": operator}, Loop.Mode.ADVISE, **more)


def compute_task_limits(pool: ObservedPool | None, usual_most: int) -> tuple[int, int]:
    """Return the minimum and maximum tasks that a loop of the pool starts with.

    They are within the plant's range. The minimum is at least one, and the maximum is the usual one or the current
    number of tasks, if that is larger.
    """
    if pool is None:
        return 1, usual_most
    least = max(1, pool.operator.minimum)
    return least, max(least, min(pool.operator.maximum, max(pool.tasks, usual_most)))


def set_pool(tasks: int, loop: Loop, plant: Plant) -> None:
    """Set the pool's number of tasks."""
    with open_elastic(loop, plant) as elastic:
        elastic.set_parallelism({loop.target["operator"]: tasks})
