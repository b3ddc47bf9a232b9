"""Leases: what Weir sets at an attached system ends there by itself unless Weir renews it.

A lease is stored at the system, with what restores the former value. The observer renews it every third of its
duration. If Weir vanishes, whatever runs beside the system restores the value: a guard (`workers.plants.guard`), or the
broker itself.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import redis

from common import environment as variables
from queues import keys
from queues.control.replies import expect_bytes
from workers.documents.plants import SetValue
from workers.plants.foreign.stored_notes import StoredNotes
from workers.plants.plant import PlantUnavailable

RENEWALS = 3  # per duration: one or two may be late or lost
# How long the tasks before Weir stay known, since the last change.
BEFORE_RETAINED_SECONDS = 90 * 24 * 3_600
WITHOUT_GUARD = "no guard is running at this system; install the guard (weir guard NAME)"
LOCK_SECONDS, LOCK_TRIES = 10.0, 100


def lease_seconds() -> float:
    """Return the duration of a lease in seconds. Raise `BadInput`, naming its variable."""
    return variables.LEASE_SECONDS.get_seconds()


def renew_seconds() -> float:
    """Return the interval at which leases are renewed, in seconds."""
    return lease_seconds() / RENEWALS


def get_installation_id(control: redis.Redis) -> str:
    """Return eight hexadecimal digits, the same for all processes of this Weir; "" if none may be stored.

    They distinguish this Weir from another one that may use the same names.
    """
    stored = control.get(keys.INSTALLATION)
    if stored is None:
        control.set(keys.INSTALLATION, secrets.token_hex(4), nx=True)
        stored = control.get(keys.INSTALLATION)
    return stored.decode() if isinstance(stored, bytes) else str(stored or "")


def format_holder(installation: str, plant: str) -> str:
    """Return the holder of a lease, with the ID of its Weir: another one may use the same name for a plant."""
    return f"weir-{installation}/{plant}" if installation else f"weir/{plant}"


class TasksBefore:
    """The tasks that operators had before Weir set them for the first time.

    Times are in seconds since 1970. An operator that was started later has its owner's tasks, and is forgotten.
    """

    def __init__(self, clock: Callable[[], float], notes: StoredNotes | None = None) -> None:
        """Set up the record. None keeps it in this process alone."""
        self._clock, self._notes = clock, notes or StoredNotes()

    def remember(self, before: Mapping[str, int], tasks: Mapping[str, int], *, is_reached: bool = True) -> None:
        """Record that Weir sets `tasks`. before: the current tasks, unless others are recorded already.

        An operator that has its former tasks again is forgotten, unless the order is still to be sent (`is_reached`).
        """
        known, now = self._notes.load_all(), self._clock()
        notes = {
            name: {**known.get(name, {"before": before.get(name, count), "at": now}), "tasks": count, "set_at": now}
            for name, count in tasks.items()
        }
        settled = [name for name, note in notes.items() if is_reached and note["before"] == note["tasks"]]
        self._notes.forget(name for name in settled if name in known)
        self._notes.put({name: note for name, note in notes.items() if name not in settled})

    def load_all(self) -> dict[str, Mapping[str, float]]:
        """Return operator → {before, tasks, at, set_at}: the former tasks, those set last, and the time of each."""
        return dict(self._notes.load_all())

    def load_changed(self) -> dict[str, Mapping[str, float]]:
        """Return those of `load_all` whose tasks differ from the former ones."""
        return {name: note for name, note in self.load_all().items() if note["before"] != note["tasks"]}

    def forget(self, names: Iterable[str]) -> None:
        self._notes.forget(names)

    def forget_restarted(self, starts: Mapping[str, float]) -> None:
        """Forget operators that were started after their tasks were recorded. starts: operator → start time."""
        self.forget([name for name, note in self.load_all().items() if note["at"] < starts.get(name, note["at"])])

    def list_undone(self, tasks: Mapping[str, int], settled_until: float) -> list[str]:
        """Return operators that have their former tasks although Weir set others.

        A guard or a person has restored them. tasks: operator → current tasks. settled_until: what Weir set until then
        has taken effect.
        """
        return [
            name
            for name, note in self.load_changed().items()
            if note["set_at"] <= settled_until and tasks.get(name) == note["before"]
        ]

    def list_set_values(self, stays: str) -> list[SetValue]:
        """Return the tasks that Weir has set and that stay if it vanishes. stays: what that means."""
        return [
            SetValue(
                item=name,
                value=format_tasks(note["tasks"]),
                afterwards=format_tasks(note["tasks"]),
                since=note["at"],
                stays=stays,
                is_harmless=True,
            )
            for name, note in self.load_changed().items()
        ]


def store_tasks_before(plant: str, control: redis.Redis, clock: Callable[[], float]) -> TasksBefore:
    """Return the record of a registered plant, which all processes of this Weir share."""
    return TasksBefore(clock, StoredNotes(keys.TASKS_BEFORE.build(plant), BEFORE_RETAINED_SECONDS, control))


def format_tasks(count: float, unit: str = "task") -> str:
    """Return a number of tasks, such as "1 task" or "8 processes"."""
    plural = f"{unit}es" if unit.endswith("s") else f"{unit}s"
    return f"{int(count)} {unit if count == 1 else plural}"


@contextmanager
def lock_lease(control: redis.Redis, plant: str, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Exclude other processes of this Weir from the lease of a plant. Raise `PlantUnavailable` if it stays locked."""
    key, token = keys.PLANT_LEASE_LOCK.build(plant), secrets.token_hex(8)
    for _ in range(LOCK_TRIES):
        if control.set(key, token, nx=True, px=round(LOCK_SECONDS * 1_000)):
            break
        sleep(LOCK_SECONDS / LOCK_TRIES)
    else:
        raise PlantUnavailable(f"{plant}: another process of Weir is still renewing its lease.")
    try:
        yield
    finally:
        if expect_bytes(control).get(key) == token.encode():
            control.delete(key)
