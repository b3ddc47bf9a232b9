"""A queue that admits less for a while: key `weir:throttle:{queue}` on the control server, present as long as
its publishers over HTTP are asked to wait (429; what is left of its time to live is when to try again).
"""

import redis

from queues import keys

LEAST_MS = 1


def throttle(control: redis.Redis, queue: str, seconds: float) -> None:
    """Admit nothing for so long, in place of what was said before; 0 admits at once."""
    if seconds > 0:
        control.set(keys.THROTTLE.build(queue), "1", px=max(LEAST_MS, round(1000 * seconds)))
    else:
        control.delete(keys.THROTTLE.build(queue))
