"""The loops of parallelism: of each application at work, and of each registered plant.

`parallelism_joint` steers the applications here from the first: its rescales cost them nothing, they happen
between two batches. The others advise, as all do at plants that are not ours, until a person trusts one of
them (`parallelism_sensors.OWNERS`: tasks have one owner).
"""

from typing import Any

import redis

from workers.control import loops as target_loops
from workers.control.parts import applications as pipeline_sensors
from workers.control.parts.operators import CORES
from workers.control.schedule import PARALLELISM_TICK_SECONDS
from workers.history.load_forecasts import WINDOW_SECONDS
from workers.models import Loop
from workers.pipeline.declaration.declared import Declarations
from workers.plants.foreign.adapters import registered
from workers.plants.plant import Snapshot
from workers.steering.scope import active_loops

EVERY: dict[str, Any] = {"interval_seconds": float(PARALLELISM_TICK_SECONDS)}
BOUND_SECONDS, OTHERS_MAXIMUM = 15.0, 4
# Of an application: nothing stops for a change, so what is left is not to turn round with every batch.
CALM: dict[str, Any] = {"guard": {"cooldown_seconds": 30.0}}
OWN: dict[str, Any] = {
    "bound_seconds": BOUND_SECONDS,
    "maximum": CORES,
    "deadline_seconds": BOUND_SECONDS,
    "pause_seconds": 0.0,
    "change_seconds": 20.0,
    "window_seconds": WINDOW_SECONDS,
    "interval_seconds": WINDOW_SECONDS,
}
LAWS = ("parallelism_queueing", "parallelism_forecast", "parallelism_joint")
# Of the forecast law an event missed costs as much as a task for a second.
FORECAST: dict[str, Any] = {"cost_task": WINDOW_SECONDS, "cost_change": WINDOW_SECONDS}
QUEUEING: dict[str, Any] = {"only_changes": True}
GONE = "it is not at work"


def ensure_parallelism_loops(control: redis.Redis, snapshot: Snapshot | None = None) -> list[Loop]:
    """Loops of each law for each of them, of the forecast law for each of an application's operators; those
    of vanished ones are retired, not deleted."""
    wanted: dict[str, dict[str, Any]] = {}
    for name in Declarations(control).at_work():
        wanted |= _of_application(name, _operators(name, snapshot or {}))
    for row in registered():
        wanted |= _of_plant(row.name)
    return target_loops.ensure(LAWS, wanted, GONE)


def _operators(application: str, snapshot: Snapshot) -> list[str]:
    """As the snapshot shows them; while it shows none, those that there were."""
    row = pipeline_sensors.application({"application": application}, snapshot)
    if row is not None and row["operators"]:
        return list(row["operators"])
    loops = active_loops().filter(law="parallelism_forecast", target__application=application)
    return [loop.target["operator"] for loop in loops]


def _of_application(name: str, operators: list[str]) -> dict[str, dict[str, Any]]:
    target = {"application": name}
    advises: dict[str, Any] = {**EVERY, **CALM, "mode": Loop.Mode.ADVISE}
    bound = {"bound_seconds": BOUND_SECONDS, "maximum": CORES, **QUEUEING}
    wanted = {
        f"parallelism_queueing/{name}": {
            "law": "parallelism_queueing",
            "target": target,
            **advises,
            "parameters": bound,
        },
        f"parallelism_joint/{name}": {
            "law": "parallelism_joint",
            "target": target,
            **EVERY,
            **CALM,
            "mode": Loop.Mode.AUTO,
            "parameters": OWN,
        },
    }
    for operator in operators:
        wanted[f"parallelism_forecast/{name}/{operator}"] = {
            "law": "parallelism_forecast",
            "target": {**target, "operator": operator},
            **advises,
            "parameters": FORECAST,
        }
    return wanted


def _of_plant(name: str) -> dict[str, dict[str, Any]]:
    parameters = {"bound_seconds": BOUND_SECONDS, "maximum": OTHERS_MAXIMUM}
    return {
        f"{law}/plant:{name}": {
            "law": law,
            "target": {"plant": name},
            **EVERY,
            "mode": Loop.Mode.ADVISE,
            "parameters": {**parameters, **own},
        }
        for law, own in (("parallelism_queueing", QUEUEING), ("parallelism_joint", {}))
    }
