"""What a queue's ladder observes: whether its demand is met, and which remedies can do no more.

    capacity = out/s                            a jobs queue that has fallen behind: it does what it can
             = out/s / share of slots at work   one that keeps up
             = demand * FULL / utilisation      a pipeline queue; utilisation: what all that is offered would
                                                take of the operators' time, shed or not

A replica that is behind shows in what waits: most of its time is Spark's own, whatever the load.
While those who publish over HTTP are asked to wait, they offer what comes of them over the share of time that
they are not.

It advises until a person trusts it: its upper levels cost delay, events.
"""

from collections.abc import Callable, Mapping
from typing import Any

from controllers import catalog
from controllers.framework.guard import Measured
from controllers.framework.sensed import Counters, Sensed
from controllers.shedding.ladder import LAW, allows, level
from queues.waiting import AT_CAPACITY_SECONDS
from workers.control.parts.kind import Display, Lanes, LoopKind, LoopStart, Targets
from workers.control.parts.offered_work import OfferedWork
from workers.control.parts.present import Present
from workers.models import LedgerEntry, Loop
from workers.placement.plans import BEING_EXECUTED
from workers.plants.plant import Plant

# Beyond it a batch, or a worker, waits for the one before it longer than it takes.
FULL = 0.9
LEAST_UTILISATION = 0.01
# Who publishes over HTTP, and so can be asked to wait.
THROTTLED_PRODUCER = "api"
NOTHING_DONE = (None, "no action")
Document = Mapping[str, Any]


def sensor(target: Document, snapshot: Document, before: Counters | None, now_seconds: float) -> Sensed:
    """{demand_per_second, capacity_per_second, backlog_seconds, saturated} of one queue."""
    name = str(target.get("queue"))
    row = (snapshot.get("queues") or {}).get(name) or {}
    demand = (row.get("in_per_second") or 0.0) + _held_back(name, snapshot)
    observation = {
        "demand_per_second": round(demand, 3),
        "capacity_per_second": round(_capacity(name, row, demand, snapshot), 3),
        "backlog_seconds": row.get("wait_seconds") or 0.0,
        "saturated": saturated(name, row, snapshot),
    }
    return Sensed(observation, _measured(name, row, snapshot, now_seconds), {})


def _held_back(queue: str, snapshot: Document) -> float:
    """What those offer beyond what comes who were asked to wait lately, events/s."""
    loop = (snapshot.get("loops") or {}).get(f"{LAW.name}/{queue}") or {}
    closed = min(0.99, float((loop.get("terms") or {}).get("closed_share") or 0.0))
    return _over_http(queue, snapshot) * closed / (1 - closed)


def _over_http(queue: str, snapshot: Document) -> float:
    producer = (snapshot.get("producers") or {}).get(THROTTLED_PRODUCER) or {}
    return float((producer.get("queues") or {}).get(queue) or 0.0)


def _capacity(name: str, row: Document, demand: float, snapshot: Document) -> float:
    if row.get("kind") == "pipeline":
        used = [OfferedWork(each, snapshot).utilisation() for each in applications(name, snapshot)]
        return demand * FULL / max([LEAST_UTILISATION, *used])
    out = row.get("out_per_second") or 0.0
    if (row.get("wait_seconds") or 0.0) > AT_CAPACITY_SECONDS:
        return float(out)
    totals = snapshot.get("totals") or {}
    slots = totals.get("worker_slots") or 0
    busy = (totals.get("workers_busy") or 0) / slots if slots else 1.0
    return max(out, demand) / max(busy, 1 / max(1, slots))


def applications(queue: str, snapshot: Document) -> list[Document]:
    """The applications that read a queue."""
    found = ((snapshot.get("pipeline") or {}).get("applications") or {}).values()
    return [row for row in found if queue in row["queues"]]


def saturated(name: str, row: Document, snapshot: Document) -> dict[str, bool]:
    """Level → whether its loops can do no more: nothing to move, all in use, or nobody lets them act."""
    return {
        "rebalance": _all_idle("rebalance", snapshot),
        "workers": _no_more_workers(name, row, snapshot),
        "nodes": _all_idle("nodes", snapshot) or _all_in_use(snapshot),
        "throttle": not _over_http(name, snapshot),  # nobody there can be asked to wait
        "shed": False,
    }


def _everything(target: Document) -> bool:
    return True


def _all_idle(level: str, snapshot: Document, helps: Callable[[Document], bool] = _everything) -> bool:
    """Whether the loops of a level have nothing to do; only those whose target helps."""
    rows = (snapshot.get("loops") or {}).values()
    return all(_idle(row, snapshot) for row in rows if _is_of(row, level) and helps(row["target"]))


def _is_of(row: Document, level: str) -> bool:
    remedy = catalog.remedy(row["law"])
    return remedy is not None and remedy.level == level


def _idle(row: Document, snapshot: Document) -> bool:
    """A loop that may not act, or that had nothing to do last and has nothing under way."""
    if row["mode"] != Loop.Mode.AUTO:
        return True
    plans, remedy = snapshot.get("plans") or (), catalog.remedy(row["law"])
    lasts = remedy is not None and remedy.lasts
    acted = row["verdict"] not in NOTHING_DONE if lasts else row["actuator"]
    return not acted and not any(plan["state"] in BEING_EXECUTED for plan in plans)


def _all_in_use(snapshot: Document) -> bool:
    totals = snapshot.get("totals") or {}
    return totals.get("nodes_in_use") == totals.get("nodes")


def _no_more_workers(name: str, row: Document, snapshot: Document) -> bool:
    if row.get("kind") == "pipeline":
        pipeline = (snapshot.get("pipeline") or {}).get("applications") or {}
        ours = {each for each, application in pipeline.items() if name in application["queues"]}
        return _all_idle("workers", snapshot, lambda target: target.get("application") in ours)
    totals = snapshot.get("totals") or {}
    if (totals.get("workers_busy") or 0) >= (totals.get("worker_slots") or 0):
        return _all_idle("workers", snapshot, lambda target: "host" in target)
    return _all_idle("workers", snapshot, lambda target: target.get("queue") == name)


def _measured(name: str, row: Document, snapshot: Document, now_seconds: float) -> Measured:
    at_seconds = snapshot.get("at")
    if at_seconds is None or not row:
        return Measured(None, f"queue {name} is not in the snapshot")
    age = abs(now_seconds - at_seconds)
    if row.get("in_per_second") is None:
        return Measured(age, f"what comes to {name} is not measured yet")
    silent = [each for each in applications(name, snapshot) if each["state"] != "running"]
    if row.get("kind") == "pipeline" and silent:
        return Measured(age, f"an application that reads {name} is {silent[0]['state']}")
    return Measured(age)


def readings(target: Document, snapshot: Document) -> dict[str, Any] | None:
    """What a level is judged by: how far behind the queue is."""
    row = (snapshot.get("queues") or {}).get(target.get("queue"))
    if row is None:
        return None
    return {"wait_seconds": row.get("wait_seconds"), "node_state": None}


def engage(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Have producers wait for the entry's share of an interval, from the level that says so on; a hand that
    sets the level has them wait all the time. What other levels may do is read from the loop's last entry.
    """
    rung = int(entry.action["rung"])
    closed = entry.action.get("closed_share", 1.0) if allows(rung, "throttle") else 0.0
    plant.throttle_queue(loop.target["queue"], closed * loop.interval_seconds)


def targets(present: Present) -> Targets:
    """Each queue."""
    topology = present.topology
    found = {f"{LAW.name}/{queue}": LoopStart({"queue": queue}) for queue in topology.queues}
    return Targets(found, f"revision {topology.revision}")


def _rung_of(action: Document) -> float:
    return float(action.get("rung", 0))


def _words(action: Document) -> str:
    rung = int(action.get("rung", 0))
    return f"enabled {level(rung)}" if rung else "disabled all levels"


def _engaged(row: Document) -> str:
    return f"the remedy ladder of {row['target']['queue']} has enabled {level(int(row['actuator']))}"


KIND = LoopKind(
    law=LAW,
    sensor=sensor,
    readings=readings,
    actuator=engage,
    targets=targets,
    interval_seconds=5,
    mode=Loop.Mode.ADVISE,
    display=Display(
        Lanes("Unmet demand, %", "Level", "enabled", scale=100.0, has_reference=False),
        title="remedy ladder",
        measured="terms.unmet",
        terms=("rung", "unmet", "closed_share"),
        lasting="rung",
        is_news=False,
        amount=_rung_of,
        past=_words,
        brief=_words,
        engaged=_engaged,
    ),
    scenario="ladder",
)
