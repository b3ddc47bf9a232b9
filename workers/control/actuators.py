"""What applies a loop's decision: one actuator per law, harmless when it is used twice for the same entry."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from typing import Any

from controllers.shedding.ladder import allows
from queues.errors import WeirError
from workers.control.ledger import ledger
from workers.models import LedgerEntry, Loop
from workers.placement import proposals
from workers.plants.foreign.adapters import plant_named
from workers.plants.plant import Elastic, Plant
from workers.plants.registry import LOCAL

LASTING_INTERVALS = 10.0
HOLD_INTERVALS = 6.0
Actuator = Callable[[LedgerEntry, Loop, Plant], None]


def start_workers(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Submit the workers the entry says. Their ids come from it: submitted again, they are recognised."""
    count = int(entry.action["start"])
    ids = [f"e{entry.pk}-{number}" for number in range(count)]
    plant.start_workers(
        loop.target["queue"], loop.target["node"], count, ids, int(entry.terms.get("ahead", 0))
    )


def move_points(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Make the entry's plan, approved by the loop; it is executed within about a second.

    An entry has one plan, however often it is applied.
    """
    proposals.from_decision(entry, plant.observe(), entry.at, approved=True)


def admit(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Admit the entry's events per interval, as a rate. It ends by itself: should the loop die, the pipeline
    is not held back for ever.
    """
    seconds = loop.interval_seconds
    changes = {
        "admit_events_per_second": entry.action["admit"] / seconds,
        "admit_until_seconds": entry.at.timestamp() + LASTING_INTERVALS * seconds,
    }
    plant.steer_pipeline(loop.target["application"], changes)


def share(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Give each replica the entry's share of the events."""
    plant.steer_pipeline(loop.target["application"], {"shares": entry.action["shares"]})


def set_threads(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Ask the host for the entry's processes. It lapses unless it is kept: a loop that dies in the middle of
    an exploration leaves no pool at a size that was only to be tried."""
    plant.resize_pool(loop.target["host"], int(entry.action["threads"]))


def keep_threads(loop: Loop, plant: Plant) -> None:
    """The loop is alive, and stands behind what it asked for."""
    plant.keep_pool(loop.target["host"])


def shed(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Put the entry's table in place of the one in force; a share of 0 needs no row. By key where the law
    counts what comes per match: so many matches are left as it keeps of their events.
    """
    shares = {
        pattern: {name: share for name, share in types.items() if share > 0}
        for pattern, types in entry.action["shed"].items()
    }
    table = {pattern: types for pattern, types in shares.items() if types}
    unit = "key" if entry.parameters["needs"] == "measured" else "event"
    plant.steer_pipeline(loop.target["application"], {"shed": table, "shed_by": unit})


def engage(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Have producers wait for the entry's share of an interval, from the rung that says so on; a hand that
    sets the rung has them wait all the time. What other rungs may do is read from the loop's last entry.
    """
    rung = int(entry.action["rung"])
    closed = entry.action.get("closed_share", 1.0) if allows(rung, "throttle") else 0.0
    plant.throttle_queue(loop.target["queue"], closed * loop.interval_seconds)


def set_tasks(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Give the operators the entry's tasks; at another plant, and keep its own controllers off them."""
    with elastic_of(loop, plant) as elastic:
        elastic.set_parallelism(entry.action["tasks"])


def set_operator(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Give one operator the entry's tasks."""
    name = f"{loop.target['application']}/{loop.target['operator']}"
    plant.set_parallelism({name: int(entry.action["tasks"])})


def keep_plant(loop: Loop, plant: Plant) -> None:
    """The loop is alive, and goes on steering the other plant's tasks: its own controllers stand still. Where
    that plant is silent, or another has taken it, the next observation says so.
    """
    if "plant" in loop.target:
        with suppress(WeirError), elastic_of(loop, plant) as elastic:
            elastic.hold(HOLD_INTERVALS * loop.interval_seconds)


def elastic_of(loop: Loop, plant: Plant) -> AbstractContextManager[Elastic]:
    """Whose tasks the loop sets: ours, or those of a registered plant."""
    return plant_named(loop.target.get("plant", LOCAL), plant)


ACTUATORS: Mapping[str, Actuator] = {
    "worker_rate": start_workers,
    "rebalancing": move_points,
    "node_scaling": move_points,
    "flow": admit,
    "balance": share,
    "concurrency": set_threads,
    "shedding": shed,
    "ladder": engage,
    "parallelism_queueing": set_tasks,
    "parallelism_forecast": set_operator,
    "parallelism_joint": set_tasks,
}
# Of laws whose actuator lapses: called at each tick that sets nothing.
KEEPERS: Mapping[str, Callable[[Loop, Plant], None]] = {
    "concurrency": keep_threads,
    "parallelism_queueing": keep_plant,
    "parallelism_joint": keep_plant,
}


def size(action: Mapping[str, Any] | None) -> float:
    """How much an action does, as one number: points moved, nodes used less nodes released, workers started,
    the rung, the greatest share shed, the value or the sum of the values set; 0 for none.
    """
    if not action:
        return 0.0
    if "moves" in action:
        return float(sum(move["points"] for move in action["moves"]))
    if "use" in action:
        return float(len(action["use"]) - len(action["release"]))
    if "rung" in action:
        return float(action["rung"])
    if "shed" in action:
        return max((share for types in action["shed"].values() for share in types.values()), default=0.0)
    return sum(_amount(value) for value in action.values())


def _amount(value: Any) -> float:
    if isinstance(value, Mapping):
        return sum(_amount(each) for each in value.values())
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


# Laws whose advice is put before a person as a plan.
PLANNING = ("rebalancing", "node_scaling")


def advise(entry: LedgerEntry, loop: Loop, snapshot: Mapping[str, Any], now: datetime) -> None:
    """What a loop in advise does with its decision: where there is something to approve, propose it.

    What can't be proposed (the plant has changed since the snapshot) is the entry's error.
    """
    if loop.law not in PLANNING:
        return
    try:
        proposals.from_decision(entry, snapshot, now, approved=False)
    except WeirError as error:
        ledger.fail(entry, str(error))
