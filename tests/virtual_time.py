"""Time that passes only while nothing else is to be done: a test waits for a minute at once, on any host."""

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable
from typing import Any


class _SkippingSelector(selectors.DefaultSelector):
    """Asks what is ready now, and skips the time in which nothing would be."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout:
            self.skipped_seconds += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while callbacks run. It knows nothing of threads: a test that
    waits for one sees its timers end first.
    """

    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        """Return the seconds that were skipped so far."""
        return self._skipping.skipped_seconds


def in_virtual_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an asynchronous test on a loop of virtual time."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*arguments, **named))  # type: ignore[arg-type]

    return run
