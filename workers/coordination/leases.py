"""One at a time, wherever it runs: a lease on the control server, with a token and a fencing number.

A lease alone can't stop a holder that was paused past its expiry and continues as if it still held it.
The fencing number can: each acquisition gets a greater one, and what is written under it is refused once a
greater was seen.
"""

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

import redis

from queues import keys
from queues.lua.script import script


class Lease:
    """`weir:lease:{name}` for some seconds. As a context manager it gives the number, or None when taken."""

    def __init__(self, control: redis.Redis, name: str, seconds: float, at_least: int = 0) -> None:
        self.name = name
        self.fence: int | None = None
        self._control = control
        self._key, self._fence_key = keys.LEASE.of(name), keys.FENCE.of(name)
        self._milliseconds = max(1, round(seconds * 1000))
        self._at_least = at_least
        self._token = secrets.token_hex(16)

    def acquire(self, at_least: int = 0) -> int | None:
        """The fencing number, greater than all before, also those that the server has forgotten, and than
        `at_least`; None while another holds the lease. Whoever holds it already, and may not have heard of
        it, is given its number again.
        """
        places = (self._key, self._fence_key)
        passed = max(self._at_least, at_least)
        fence = self._control.eval(
            script("lease/acquire"), 2, *places, self._token, self._milliseconds, passed
        )
        self.fence = int(fence) or None
        return self.fence

    def renew(self) -> bool:
        """Hold it for its full time again; False when it was lost: stop what it protects."""
        return self._under_token(script("lease/renew"), self._milliseconds)

    @contextmanager
    def renewed(self, beside: Callable[[], object] = lambda: None) -> Iterator[None]:
        """It is renewed meanwhile, for what may take longer than it lasts: an order to another's server.
        Whoever is killed or frozen in it renews nothing, and the lease ends as ever. `beside` is called after
        each renewal, in another thread: what is to last as long as the lease.
        """
        ended = threading.Event()
        thread = threading.Thread(target=self._renew_until, args=(ended, beside), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _renew_until(self, ended: threading.Event, beside: Callable[[], object]) -> None:
        while not ended.wait(self._milliseconds / 3_000):
            with suppress(redis.RedisError):  # the next renewal may still come in time
                if not self.renew():
                    return
                beside()

    def release(self) -> bool:
        """Give it up; False when it was no longer ours, and another's is never touched."""
        released = self._under_token(script("lease/release"))
        self.fence = None
        return released

    def _under_token(self, script: str, *arguments: int) -> bool:
        if self.fence is None:
            return False
        return bool(self._control.eval(script, 1, self._key, f"{self._token}:{self.fence}", *arguments))

    def __enter__(self) -> int | None:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
