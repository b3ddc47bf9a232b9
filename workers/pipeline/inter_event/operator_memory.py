"""What an operator remembers of some key groups: per group one value, in which each pattern has its part."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

_LENGTH = struct.Struct("<I")


@dataclass
class OperatorMemory:
    """parts: signature → group → state. A part of a pattern that is not asked for any more is forgotten."""

    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    _kept: dict[int, dict[str, bytes]] = field(default_factory=dict)
    _timers_us: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, places: Mapping[str, bytes]) -> "OperatorMemory":
        """Of the values of places (`operator/group`)."""
        memory = cls()
        for place, data in places.items():
            group = int(place.rpartition("/")[2])
            for signature, state in _unpacked(data).items():
                memory.parts.setdefault(signature, {})[group] = state
        return memory

    def states(self, signature: str) -> dict[int, bytes]:
        """A pattern's state of each group that has some."""
        return self.parts.get(signature, {})

    def keep(self, signature: str, states: Mapping[int, bytes], timers_us: Mapping[int, int]) -> None:
        """timers_us: group → event time at which it is to be checked again, events or none."""
        for group, state in states.items():
            self._kept.setdefault(group, {})[signature] = state
        for group, time_us in timers_us.items():
            self._timers_us[group] = min(self._timers_us.get(group, time_us), time_us)

    def written(self, places: list[str]) -> dict[str, tuple[bytes, int | None]]:
        """The value of every place, and when it is due."""
        groups = {place: int(place.rpartition("/")[2]) for place in places}
        return {
            place: (_packed(self._kept.get(group, {})), self._timers_us.get(group))
            for place, group in groups.items()
        }


def _packed(parts: Mapping[str, bytes]) -> bytes:
    if not parts:
        return b""
    head = orjson.dumps({signature: len(state) for signature, state in parts.items()})
    return b"".join((_LENGTH.pack(len(head)), head, *parts.values()))


def _unpacked(data: bytes) -> dict[str, bytes]:
    (length,) = _LENGTH.unpack_from(data)
    place = _LENGTH.size + length
    found = {}
    for signature, size in orjson.loads(data[_LENGTH.size : place]).items():
        found[signature] = data[place : place + size]
        place += size
    return found
