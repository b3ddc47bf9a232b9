"""Notes of an adapter about the parts of its plant, which every process of Weir sees, also a later observer.

Without a control server they are kept in this process alone: for an inspection, a dry run, and tests.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import redis

from queues.control.replies import expect_bytes

Note = dict[str, Any]  # a JSON object, as the adapter wrote it


class StoredNotes:
    """One note for each name, in a hash."""

    def __init__(self, key: str = "", retained_seconds: float = 0.0, control: redis.Redis | None = None) -> None:
        """Set up the notes. retained_seconds: since the last note."""
        self._control, self._key, self._retained_seconds = control, key, int(retained_seconds)
        self._own: dict[str, Note] = {}

    def put(self, notes: Mapping[str, Note]) -> None:
        if self._control is None:
            self._own |= notes
        elif notes:
            self._control.hset(self._key, mapping={name: json.dumps(note) for name, note in notes.items()})
            self._control.expire(self._key, self._retained_seconds)

    def forget(self, names: Iterable[str]) -> None:
        names = list(names)
        if self._control is None:
            self._own = {name: note for name, note in self._own.items() if name not in names}
        elif names:
            self._control.hdel(self._key, *names)

    def load_all(self) -> dict[str, Note]:
        if self._control is None:
            return dict(self._own)
        stored = expect_bytes(self._control).hgetall(self._key)
        return {name.decode(): json.loads(note) for name, note in stored.items()}


class ExpiringNotes:
    """One note for each name, in a string of its own that expires."""

    def __init__(
        self,
        build_key: Callable[[str], str] = str,
        control: redis.Redis | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up the notes. build_key: returns the key of a name."""
        self._control, self._build_key, self._monotonic = control, build_key, monotonic
        self._own: dict[str, tuple[float, Note]] = {}  # until when, and the note

    def get(self, name: str) -> Note | None:
        if self._control is None:
            until, note = self._own.get(name, (0.0, None))
            return note if self._monotonic() < until else None
        stored = self._control.get(self._build_key(name))
        return cast(Note, json.loads(stored)) if stored else None

    def put(self, name: str, note: Note, seconds: float) -> None:
        if self._control is None:
            self._own[name] = self._monotonic() + seconds, note
        else:
            self._control.set(self._build_key(name), json.dumps(note), px=round(seconds * 1_000))

    def forget(self, name: str) -> None:
        self._own.pop(name, None)
        if self._control is not None:
            self._control.delete(self._build_key(name))
