"""Who steers a plant's tasks through the control API: one controller at a time, for some seconds.

Whoever sets tasks holds the plant from then on, and longer each time it sets again. Meanwhile another
controller is refused and told who holds it, and the plant's own loops of parallelism hold: an actuator has
one owner.
"""

import json
from typing import Any

import redis

from queues import keys
from queues.errors import WeirError

SECONDS, LEAST_SECONDS, MOST_SECONDS = 60.0, 1.0, 3600.0
# KEYS the plant's holder; ARGV who asks, what would be written, ms. Gives what stands there: of another, or
# of the same for longer than asked; nothing when it was written.
_HOLD = """
local stored = redis.call('GET', KEYS[1])
if stored and cjson.decode(stored).holder ~= ARGV[1] then return stored end
if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[3]) then return stored end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return false
"""
_RELEASE = """
local stored = redis.call('GET', KEYS[1])
if not stored or cjson.decode(stored).holder ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""


class PlantHeld(WeirError):  # noqa: N818
    """Another controller steers the plant: `holder`, until `until` (s since 1970)."""

    def __init__(self, plant: str, holder: str, until: float) -> None:
        super().__init__(f"{plant} is steered by {holder}; try again when it has let go.")
        self.plant, self.holder, self.until = plant, holder, until


def hold(control: redis.Redis, plant: str, holder: str, now: float, seconds: float = SECONDS) -> float:
    """Take the plant, or keep it longer, never shorter; until when. Raises PlantHeld while another has it."""
    until = now + seconds
    document = json.dumps({"holder": holder, "until": until})
    stored = control.eval(_HOLD, 1, keys.HOLDER.of(plant), holder, document, round(seconds * 1000))
    if not stored:
        return until
    found = json.loads(stored)
    if found["holder"] != holder:
        raise PlantHeld(plant, found["holder"], found["until"])
    return float(found["until"])


def release(control: redis.Redis, plant: str, holder: str) -> bool:
    """Let go; False when it was not this holder's."""
    return bool(control.eval(_RELEASE, 1, keys.HOLDER.of(plant), holder))


def holder_of(control: redis.Redis, plant: str) -> dict[str, Any] | None:
    """{"holder", "until"}, or None while nobody holds it."""
    stored = control.get(keys.HOLDER.of(plant))
    return json.loads(stored) if stored else None
