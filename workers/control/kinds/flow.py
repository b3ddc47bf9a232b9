"""The loops of the pipeline: admission by the room of the result queue, shares by response times, and what is
shed when nothing else helps.
"""

from typing import Any

import redis

from controllers.design import placement
from queues.events.block import BLOCK_EVENTS
from workers.control import loops as target_loops
from workers.control.schedule import BALANCE_TICK_SECONDS, FLOW_TICK_SECONDS, SHEDDING_TICK_SECONDS
from workers.models import Loop
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.declaration.declared import Declarations

# The result queue fills by what is admitted and empties by itself: it keeps all of its free space (a = 1) but
# for about 100 bytes an event, which is felt a sample late: an event is a second on its way, and the status
# another one old. The combiner's batches make a saw's teeth of it, of which nothing may be learnt.
MODEL = placement.Model(1.0, -100.0, 1)
POLES = (0.6, 0.6, 0.2)
RESOLUTION = 0.05
GAINS = placement.place(MODEL, POLES)
LAWS: dict[str, dict[str, Any]] = {
    # Half of the result queue is kept free. A block is always admitted: event time goes on with what comes,
    # and what waits for it would never leave the queue.
    "flow": {
        "interval_seconds": float(FLOW_TICK_SECONDS),
        "parameters": {
            "setpoint": Controls().result_bytes / 2,
            "minimum": float(BLOCK_EVENTS),
            "kp": GAINS.kp,
            "ki": GAINS.ki,
            "kd": GAINS.kd,
            "a": MODEL.a,
            "b": MODEL.b,
            "delay": MODEL.delay,
            "tuning": "adaptive",
            "resolution": RESOLUTION,
            "interval_seconds": float(FLOW_TICK_SECONDS),
        },
    },
    "balance": {
        "interval_seconds": float(BALANCE_TICK_SECONDS),
        "parameters": {"interval_seconds": float(BALANCE_TICK_SECONDS)},
    },
    # It may act by itself, since it does only where the ladder of every queue it reads has come to its last
    # rung. Patterns of an application have keys: an event serves its own, and none is too many.
    "shedding": {
        "interval_seconds": float(SHEDDING_TICK_SECONDS),
        "parameters": {"latency_bound_seconds": 15.0, "needs": "measured"},
    },
}


def ensure_pipeline_loops(control: redis.Redis) -> list[Loop]:
    """A loop of each law for each application at work; those of vanished ones are retired, not deleted."""
    at_work = Declarations(control).at_work()
    wanted = {
        f"{law}/{application}": {"law": law, "target": {"application": application}, **made}
        for law, made in LAWS.items()
        for application in at_work
    }
    return target_loops.ensure(LAWS, wanted, "its application is not at work")
