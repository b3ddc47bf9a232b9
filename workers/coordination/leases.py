"""Mutual exclusion across hosts: a lease on the control server with a token and a fencing number.

A lease alone cannot stop a holder that was paused past its expiry and continues as if it still held the lease. The
fencing number can: each acquisition gets a greater one, and a write under a number is rejected once a greater one was
seen.
"""

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

import redis
from django.db import connection

from queues import keys
from queues.lua.script import load_script

RENEWAL = "lease renewal"  # name of the renewing threads


class Lease:
    """A lease `weir:lease:{name}` of some seconds.

    As a context manager it gives the number, or None when it is taken.
    """

    def __init__(
        self, control: redis.Redis, name: str, seconds: float, at_least: int = 0, token: str | None = None
    ) -> None:
        """Initialize the lease. token: identifies its holder; None: a new one."""
        self.name = name
        self.fence: int | None = None
        self._control = control
        self._key, self._fence_key = keys.LEASE.build(name), keys.FENCE.build(name)
        self._milliseconds = max(1, round(seconds * 1000))
        self._at_least = at_least
        self._token = token or secrets.token_hex(16)

    def acquire(self, at_least: int = 0) -> int | None:
        """Acquire the lease and return its fencing number; None while another process holds it.

        The number is greater than all before, including those that the server has lost, and greater than `at_least`. A
        holder that already has the lease, and may not have received the reply, gets its number again.
        """
        self._at_least = max(self._at_least, at_least)
        _acquire(self._control, [self])
        return self.fence

    def renew(self) -> bool:
        """Renew the lease for its full time; return False when it was lost and the work must stop."""
        return self.fence is not None and any(_renew(self._control, [self]))

    @contextmanager
    def keep_renewed(
        self, beside: Callable[[], object] = lambda: None, every_seconds: float | None = None
    ) -> Iterator[None]:
        """Renew the lease while inside, for work that may take longer than the lease.

        An example is an order to another server. A process that is killed or frozen renews nothing, and the lease
        expires as usual. `beside` is called after each renewal, in another thread, to extend whatever must last as long
        as the lease. `every_seconds`: the interval between two renewals, a third of the lease by default.
        """

        def renew() -> bool:
            held = self.renew()
            if held:
                beside()
            return held

        with _renew_in_background(renew, every_seconds or self._milliseconds / 3_000):
            yield

    def release(self) -> bool:
        """Release the lease; return False when it was no longer held. A lease of another process is never touched."""
        released = self.fence is not None and any(_release(self._control, [self]))
        self.fence = None
        return released

    def __enter__(self) -> int | None:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class LeaseGroup:
    """Several independent leases of the same duration.

    One that another process holds does not block the others. Each step takes one round trip for all. As a context
    manager it gives the numbers by name, without leases that are taken.
    """

    def __init__(self, control: redis.Redis, at_least: Mapping[str, int], seconds: float) -> None:
        """Initialize the leases. at_least: name → the number that its fencing number must exceed."""
        self._control, self._seconds = control, seconds
        token = secrets.token_hex(16)
        self._leases = [Lease(control, name, seconds, passed, token) for name, passed in at_least.items()]

    def acquire(self) -> dict[str, int]:
        """Acquire the leases; see `Lease.acquire`."""
        _acquire(self._control, self._leases)
        return {lease.name: lease.fence for lease in self._leases if lease.fence is not None}

    def renew(self) -> bool:
        """Renew all held leases for their full time; return False when none is held any more."""
        held = [lease for lease in self._leases if lease.fence is not None]
        answers = _renew(self._control, held)
        for lease, is_held in zip(held, answers, strict=True):
            lease.fence = lease.fence if is_held else None
        return any(answers)

    @contextmanager
    def keep_renewed(self, every_seconds: float | None = None) -> Iterator[None]:
        """Renew the leases while inside; see `Lease.keep_renewed`."""
        with _renew_in_background(self.renew, every_seconds or self._seconds / 3):
            yield

    def release(self) -> None:
        """Release all held leases."""
        held = [lease for lease in self._leases if lease.fence is not None]
        _release(self._control, held)
        for lease in held:
            lease.fence = None

    def __enter__(self) -> dict[str, int]:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _acquire(control: redis.Redis, leases: Sequence[Lease]) -> None:
    """Set the number of each lease, None where another process holds it. All leases have the same duration.

    They take one call, because a call for each lease took a tenth of a tick of many loops.
    """
    places = [key for lease in leases for key in (lease._key, lease._fence_key)]
    wanted = [word for lease in leases for word in (lease._token, lease._at_least)]
    answers = _call(control, load_script("lease/acquire"), places, [leases[0]._milliseconds, *wanted]) if leases else []
    for lease, fence in zip(leases, answers, strict=True):
        lease.fence = fence or None


def _renew(control: redis.Redis, held: Sequence[Lease]) -> list[int]:
    """Renew leases of the same duration for their full time, and return 0 for each lease that was lost."""
    if not held:
        return []
    places, tokens = [lease._key for lease in held], map(_format, held)
    return _call(control, load_script("lease/renew"), places, [held[0]._milliseconds, *tokens])


def _release(control: redis.Redis, held: Sequence[Lease]) -> list[int]:
    """Release leases, and return 0 for each lease that was lost."""
    if not held:
        return []
    return _call(control, load_script("lease/release"), [lease._key for lease in held], list(map(_format, held)))


def _format(lease: Lease) -> str:
    """Return the value of a held lease on the server."""
    return f"{lease._token}:{lease.fence}"


def _call(control: redis.Redis, script: str, places: Sequence[str], arguments: Sequence[str | int]) -> list[int]:
    answers: Any = control.eval(script, len(places), *places, *arguments)
    return list(answers)


@contextmanager
def _renew_in_background(renew: Callable[[], bool], seconds: float) -> Iterator[None]:
    """Call `renew` periodically in another thread until it returns False."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds):
            with suppress(redis.RedisError):  # the next renewal may still come in time
                if not renew():
                    return

    thread = threading.Thread(target=run, name=RENEWAL, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


BACKUP = "backup"
BACKUP_SECONDS = 30.0
# Leases of processes that transfer blocks: each running plan, and the cleanup of interrupted transfers.
SETTLING = "settling"
TRANSFERS = ("plan:*", SETTLING)


def create_backup_lease(control: redis.Redis) -> Lease:
    """Return the lease of a backup; one backup runs at a time."""
    return Lease(control, BACKUP, BACKUP_SECONDS)


def is_copied(control: redis.Redis) -> bool:
    """Return whether a backup of the plant is in progress. Call this while holding a lease of TRANSFERS."""
    return bool(control.exists(keys.LEASE.build(BACKUP)))


def list_transfer_leases(control: redis.Redis) -> list[str]:
    """List the leases of processes that may be transferring blocks."""
    lease_names = [name for kind in TRANSFERS for name in control.scan_iter(keys.LEASE.build(kind), 1_000)]
    return sorted(name.decode().removeprefix(keys.LEASE.build("")) for name in lease_names)


def lock_until_commit(name: str) -> None:
    """Wait until no other transaction holds the name, then hold it until this transaction ends.

    On SQLite, a transaction has the write lock of the whole database from its start (settings: IMMEDIATE).
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [name])
