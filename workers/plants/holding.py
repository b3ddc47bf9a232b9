"""The controller of a plant's tasks through the control API: one controller at a time, for some seconds.

A controller that sets tasks holds the plant from then on, and extends the hold each time it sets them again. Meanwhile
another controller is refused and gets the name of the holder, and the plant's own parallelism loops hold: an actuator
has one owner.
"""

from collections.abc import Mapping

import redis

from common.errors import WeirError
from common.stored_document import decode_document, encode_document
from controllers.parallelism.measured_topology import LATEST_SECONDS
from queues import keys
from queues.lua.script import load_script
from workers.documents.plants import PlantHolder

SECONDS, MIN_SECONDS, MAX_SECONDS = 60.0, 1.0, 3600.0
MAX_HOLDER = 300
NO_TASKS: Mapping[str, int] = {}


class PlantHeld(WeirError):  # noqa: N818
    """Another controller has the plant: `holder`, until `until` (seconds since 1970).

    Attached plants may supply both, so the name is shortened and the time is limited to valid dates.
    """

    def __init__(self, plant: str, holder: str, until: float) -> None:
        holder, until = holder[:MAX_HOLDER], min(max(0.0, until), LATEST_SECONDS)
        super().__init__(f"{plant} is controlled by {holder}. Try again when {holder} has released it.")
        self.plant, self.holder, self.until = plant, holder, until


def hold(
    control: redis.Redis,
    plant: str,
    holder: str,
    now: float,
    seconds: float = SECONDS,
    *,
    reason: str = "",
    before: Mapping[str, int] = NO_TASKS,
    after: Mapping[str, int] = NO_TASKS,
) -> float:
    """Take the plant, or extend the hold, never shorten it; return its expiry.

    reason, before, after: why, and the tasks that are set; an extension keeps those of the hold. Raise `PlantHeld`
    while another controller has it.
    """
    until = now + seconds
    known = find_holder(control, plant)
    if known is None or known.holder != holder:
        known = PlantHolder(since=now)
    document = encode_document(
        PlantHolder(
            holder=holder,
            until=until,
            since=known.since,
            reason=reason or known.reason,
            before={**before, **known.before},
            after={**known.after, **after},
        )
    )
    stored = control.eval(
        load_script("plant/hold"), 1, keys.HOLDER.build(plant), holder, document, round(seconds * 1000)
    )
    if not stored:
        return until
    stored_holder = decode_document(PlantHolder, stored, "holder")
    if stored_holder.holder != holder:
        raise PlantHeld(plant, stored_holder.holder or "another", stored_holder.until or until)
    return stored_holder.until or until


def release(control: redis.Redis, plant: str, holder: str) -> bool:
    """Release the plant. Return False if this holder did not have it."""
    return bool(control.eval(load_script("plant/release"), 1, keys.HOLDER.build(plant), holder))


def find_holder(control: redis.Redis, plant: str) -> PlantHolder | None:
    """Return the holder, or None."""
    stored = control.get(keys.HOLDER.build(plant))
    return decode_document(PlantHolder, stored, "holder") if stored else None
