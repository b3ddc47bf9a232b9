"""Fairness of a jobs queue: keys with far more events than others don't delay the events of the others.

A queue is fair while `weir:fairness:{queue}` exists on the control server: a hash with the settings and one field per
overridden key. Publishers divert the events of heavy keys into blocks of their own (`queues.publishing.lanes`). Nodes
give out the lanes of a fair queue by weight (`segment/claim_lanes.lua`). A block's ID starts with the number of its
lane, such as `7~`, so that transfers and retries keep it. Blocks without a number belong to lane 0, the ordinary lane.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import redis

from common.stored_document import BadDocument, StoredDocument, decode_document, encode_document
from queues import keys
from queues.control.replies import expect_bytes

LANES = 16  # for diverted key groups: 1 to 16
OVERRIDE_LANES = 1_000  # from 17: a lane for each key with a weight of its own, unless two keys have the same hash
SETTINGS, KEY_PREFIX = "settings", "key:"
MIN_WEIGHT, MAX_WEIGHT = 0.01, 10_000.0


class FairnessSettings(StoredDocument, frozen=True):
    """Settings of a fair queue. ordinary_weight: the weight of lane 0, in shares of one key."""

    ordinary_weight: float = 1_000.0


class KeyWeight(StoredDocument, frozen=True):
    """A weight that a person gives a key, in shares of one ordinary key. until: seconds since 1970."""

    weight: float
    until: float
    reason: str
    by: str


@dataclass(frozen=True)
class LaneWeights:
    """The weights by which a node gives out lanes. own: weights by lane, for overridden keys."""

    ordinary: float = FairnessSettings().ordinary_weight
    own: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Fairness:
    """The fairness of a queue as read. overrides: by key, without those that have ended."""

    settings: FairnessSettings
    overrides: Mapping[str, KeyWeight]

    def build_lane_weights(self) -> LaneWeights:
        """Return the weights of lanes. Of keys that share a lane, the largest weight counts."""
        own: dict[int, float] = {}
        for key, override in self.overrides.items():
            lane = get_override_lane(key)
            own[lane] = max(own.get(lane, 0.0), override.weight)
        return LaneWeights(self.settings.ordinary_weight, own)


def get_override_lane(key: str) -> int:
    """Return the lane of a key while it has a weight of its own."""
    return LANES + 1 + zlib.crc32(key.encode()) % OVERRIDE_LANES


def enable(control: redis.Redis, queue: str, settings: FairnessSettings) -> None:
    """Make a queue fair, or replace its settings. Publishers follow within a second, workers with their next start."""
    control.hset(keys.FAIRNESS.build(queue), SETTINGS, encode_document(settings))


def disable(control: redis.Redis, queue: str) -> None:
    """Give out all events in the order of their arrival again, and end all overrides. Diverted blocks stay in order."""
    control.delete(keys.FAIRNESS.build(queue))


def set_ordinary_weight(control: redis.Redis, queue: str, weight: float) -> None:
    """Change the weight of lane 0. Does nothing if the queue is no longer fair."""
    name = keys.FAIRNESS.build(queue)
    if control.hexists(name, SETTINGS):
        control.hset(name, SETTINGS, encode_document(FairnessSettings(ordinary_weight=weight)))


def list_fair_queues(control: redis.Redis, queues: Sequence[str]) -> list[str]:
    """Return those of the queues that are fair. Raises `redis.RedisError`."""
    return [queue for queue, weight in read_ordinary_weights(control, queues).items() if weight is not None]


def read_ordinary_weights(control: redis.Redis, queues: Sequence[str]) -> dict[str, float | None]:
    """Return the weight of lane 0 by queue; None for a queue that is not fair. Raises `redis.RedisError`."""
    with control.pipeline(transaction=False) as pipe:
        for queue in queues:
            pipe.hget(keys.FAIRNESS.build(queue), SETTINGS)
        stored = pipe.execute()
    return {queue: parse_ordinary_weight(text) for queue, text in zip(queues, stored, strict=True)}


def parse_ordinary_weight(stored: bytes | None) -> float | None:
    """Return the weight in stored settings; None without settings."""
    if stored is None:
        return None
    try:
        return decode_document(FairnessSettings, stored, "fairness").ordinary_weight
    except BadDocument:
        return FairnessSettings().ordinary_weight


def set_weight(control: redis.Redis, queue: str, key: str, weight: KeyWeight) -> None:
    """Override the weight of a key until then, in place of any earlier weight."""
    control.hset(keys.FAIRNESS.build(queue), KEY_PREFIX + key, encode_document(weight))


def end_weight(control: redis.Redis, queue: str, key: str) -> None:
    """End the override of a key. Does nothing if there is none."""
    control.hdel(keys.FAIRNESS.build(queue), KEY_PREFIX + key)


def load_fairness(control: redis.Redis, queue: str, now: float) -> Fairness | None:
    """Return the fairness of a queue; None if it is not fair. Raises `redis.RedisError`."""
    return read_fairness(expect_bytes(control).hgetall(keys.FAIRNESS.build(queue)), now)


def read_fairness(stored: Mapping[bytes, bytes], now: float) -> Fairness | None:
    """Parse the stored hash. Fields of another version are ignored, since fairness must not stop a queue."""
    if SETTINGS.encode() not in stored:
        return None
    settings, overrides = FairnessSettings(), {}
    for name, text in stored.items():
        field_name = name.decode(errors="replace")
        try:
            if field_name == SETTINGS:
                settings = decode_document(FairnessSettings, text, "fairness")
            elif field_name.startswith(KEY_PREFIX):
                override = decode_document(KeyWeight, text, "weight")
                if override.until > now:
                    overrides[field_name.removeprefix(KEY_PREFIX)] = override
        except BadDocument:
            continue
    return Fairness(settings, overrides)


def list_ended_keys(control: redis.Redis, queue: str, now: float) -> list[str]:
    """Return the keys whose overrides have ended or can't be read, so that their fields can be removed."""
    stored = expect_bytes(control).hgetall(keys.FAIRNESS.build(queue))
    current = read_fairness(stored, now)
    names = {name.decode(errors="replace") for name in stored} - {SETTINGS}
    running = set(current.overrides) if current is not None else set()
    return sorted({name.removeprefix(KEY_PREFIX) for name in names} - running)
