"""The memory of an operator for some key groups: one value per group, in which each pattern has its part.

Open matches wait for the whole window of a pattern, so a producer with many or long keys determines how much is stored.
The control server stores it, and refuses all writes of the plant when it is full. All operators of an application
therefore share MAX_STATE_BYTES: a group that takes more than its share drops the open matches of its largest pattern
first.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

_LENGTH = struct.Struct("<I")
MAX_STATE_BYTES = 128 * 2**20  # of an application: a quarter of what ./run gives the control server


def place_limit(operators: int, groups: int) -> int:
    """Return how many bytes one key group of one operator may store."""
    return MAX_STATE_BYTES // (operators * groups)


@dataclass
class OperatorMemory:
    """The stored states of an operator.

    parts: signature → group → state. The part of a pattern that is no longer used is dropped.
    max_place_bytes: limit of a group. forgotten_bytes: signature → bytes that did not fit, once `written`.
    """

    max_place_bytes: int = MAX_STATE_BYTES
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    forgotten_bytes: dict[str, int] = field(default_factory=dict)
    _kept: dict[int, dict[str, bytes]] = field(default_factory=dict)
    _timers_us: dict[int, int] = field(default_factory=dict)

    @classmethod
    def build(cls, places: Mapping[str, bytes], max_place_bytes: int = MAX_STATE_BYTES) -> "OperatorMemory":
        """Build from the values of places (`operator/group`)."""
        memory = cls(max_place_bytes)
        for place, data in places.items():
            group = int(place.rpartition("/")[2])
            for signature, state in _unpack_parts(data).items():
                memory.parts.setdefault(signature, {})[group] = state
        return memory

    def get_states(self, signature: str) -> dict[int, bytes]:
        """Return the states of a pattern by group."""
        return self.parts.get(signature, {})

    def keep(self, signature: str, states: Mapping[int, bytes], timers_us: Mapping[int, int]) -> None:
        """Keep the states of a pattern.

        timers_us: group → event time at which it has to be checked again, even without events.
        """
        for group, state in states.items():
            self._kept.setdefault(group, {})[signature] = state
        for group, time_us in timers_us.items():
            self._timers_us[group] = min(self._timers_us.get(group, time_us), time_us)

    def write_places(self, places: list[str]) -> dict[str, tuple[bytes, int | None]]:
        """Return the value of every place, and when it is due."""
        groups = {place: int(place.rpartition("/")[2]) for place in places}
        return {
            place: (_pack_parts(self._drop_excess_parts(self._kept.get(group, {}))), self._timers_us.get(group))
            for place, group in groups.items()
        }

    def _drop_excess_parts(self, parts: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Leave out the largest parts of a group until the rest fits, and count what is left out."""
        total = sum(map(len, parts.values()))
        left = dict(parts)
        for signature in sorted(parts, key=lambda name: -len(parts[name])):
            if total <= self.max_place_bytes:
                break
            size = len(left.pop(signature))
            total -= size
            self.forgotten_bytes[signature] = self.forgotten_bytes.get(signature, 0) + size
        return left


def _pack_parts(parts: Mapping[str, bytes]) -> bytes:
    if not parts:
        return b""
    head = orjson.dumps({signature: len(state) for signature, state in parts.items()})
    return b"".join((_LENGTH.pack(len(head)), head, *parts.values()))


def _unpack_parts(data: bytes) -> dict[str, bytes]:
    (length,) = _LENGTH.unpack_from(data)
    place = _LENGTH.size + length
    parts = {}
    for signature, size in orjson.loads(data[_LENGTH.size : place]).items():
        parts[signature] = data[place : place + size]
        place += size
    return parts
