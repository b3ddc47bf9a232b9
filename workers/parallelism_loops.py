"""The loops of parallelism: of each application at work, and of each registered plant."""

from typing import Any

import redis

from workers import target_loops
from workers.models import Loop
from workers.pipeline.declared import Declarations
from workers.plants.adapters import registered
from workers.schedule import PARALLELISM_TICK_SECONDS

LAWS: dict[str, dict[str, Any]] = {
    # They advise until a person trusts one of them: tasks have one owner.
    law: {
        "interval_seconds": float(PARALLELISM_TICK_SECONDS),
        "mode": Loop.Mode.ADVISE,
        "parameters": {"bound_seconds": 15.0, "maximum": 4},
    }
    for law in ("parallelism_queueing", "parallelism_joint")
}
GONE = "it is not at work"


def ensure_parallelism_loops(control: redis.Redis) -> list[Loop]:
    """A loop of each law for each of them; those of vanished ones are retired, not deleted."""
    targets = {name: {"application": name} for name in Declarations(control).at_work()}
    targets |= {f"plant:{row.name}": {"plant": row.name} for row in registered()}
    wanted = {
        f"{law}/{name}": {"law": law, "target": target, **made}
        for law, made in LAWS.items()
        for name, target in targets.items()
    }
    return target_loops.ensure(LAWS, wanted, GONE)
