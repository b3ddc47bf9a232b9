"""Twins of `threading` and of thread pools, whose threads are those of the scheduler.

A simulated process uses them in place of the real ones (`bench.simulation.installation`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from bench.simulation import context
from bench.simulation.scheduler import VirtualThread


class Event:
    """A twin of `threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: list[VirtualThread] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        context.scheduler().wake_all(self._waiters)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = context.scheduler()
        deadline = None if timeout is None else scheduler.now + timeout
        while not self._is_set:
            left = None if deadline is None else deadline - scheduler.now
            if left is not None and left <= 0:
                break
            scheduler.wait(self._waiters, left)
        return self._is_set


class Thread:
    """A twin of `threading.Thread`. It belongs to the process that starts it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] = lambda: None,
        name: str = "thread",
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name, self.daemon = name, daemon
        self._run = lambda: target(*args, **(kwargs or {}))
        self._thread: VirtualThread | None = None

    def start(self) -> None:
        process = context.scheduler().process
        assert process is not None, "only a simulated process starts threads"
        self._thread = context.scheduler().start_thread(process, self._run, self.name)

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.is_over

    def join(self, timeout: float | None = None) -> None:
        scheduler, thread = context.scheduler(), self._thread
        deadline = None if timeout is None else scheduler.now + timeout
        while thread is not None and not thread.is_over:
            left = None if deadline is None else deadline - scheduler.now
            if left is not None and left <= 0:
                return
            scheduler.wait(thread.waiters, left)


class Call:
    """A twin of `concurrent.futures.Future`."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act
        self._result: Any = None
        self._error: Exception | None = None
        self._ended = Event()

    def run(self) -> None:
        try:
            self._result = self._act()
        except Exception as error:
            self._error = error
        self._ended.set()

    def done(self) -> bool:
        return self._ended.is_set()

    def exception(self) -> Exception | None:
        self._ended.wait()
        return self._error

    def result(self) -> Any:
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return self._result


class ThreadPoolExecutor:
    """A twin of the thread pool, with a thread for each call."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "pool") -> None:
        self._name, self._calls = thread_name_prefix, list[Call]()

    def submit(self, act: Callable[..., Any], /, *arguments: Any, **named: Any) -> Call:
        call = Call(lambda: act(*arguments, **named))
        self._calls.append(call)
        Thread(target=call.run, name=self._name).start()
        return call

    def shutdown(self, wait: bool = True) -> None:
        for call in self._calls if wait else ():
            call.exception()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


def wait(calls: Collection[Call], timeout: float | None = None, return_when: str = "") -> tuple[list[Call], list[Call]]:
    """Return the calls that have ended, and the others, once one has ended or the time is over.

    They are in their order: that of sets would differ from run to run.
    """
    scheduler = context.scheduler()
    deadline = scheduler.now + (timeout or 0.0)
    while not any(call.done() for call in calls) and scheduler.now < deadline:
        scheduler.pause(min(0.01, deadline - scheduler.now))
    return [call for call in calls if call.done()], [call for call in calls if not call.done()]
