"""The simulation that this process runs, and its clocks. Code that has no other access to them uses it."""

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any

from bench.simulation.scheduler import Scheduler

_running: Scheduler | None = None


def scheduler() -> Scheduler:
    """Return the scheduler of the running simulation."""
    assert _running is not None, "no simulation is running"
    return _running


def is_running() -> bool:
    return _running is not None


def set_scheduler(new: Scheduler | None) -> None:
    global _running
    _running = new


def virtual(real: Callable[..., Any], value: Callable[[Scheduler], float]) -> Callable[..., float]:
    """Return a clock that is virtual while a simulation runs, and the real one otherwise."""
    return lambda: value(_running) if _running is not None else real()


def read_wall_clock(running: Scheduler) -> float:
    """Return the time by the clock of the host of the current process."""
    process = running.process
    return running.now + (process.clock_offset if process is not None else 0.0)


def read_monotonic_clock(running: Scheduler) -> float:
    return running.now - running.starts_at + 1_000.0


def sleep(real: Callable[[float], None]) -> Callable[[float], None]:
    """Return a sleep that is virtual in simulated threads."""

    def pause(seconds: float) -> None:
        if _running is not None and _running.current is not None:
            _running.pause(max(0.0, seconds))
        else:
            real(seconds)

    return pause


def get_time() -> datetime:
    """Return the time by the clock of the current process."""
    return datetime.fromtimestamp(read_wall_clock(scheduler()), UTC)


class _VirtualDatetimeType(type):
    def __call__(cls, *arguments: Any, **named: Any) -> datetime:
        return datetime(*arguments, **named)  # noqa: DTZ001 - the caller gives the zone

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)

    def __getattr__(cls, name: str) -> Any:
        return getattr(datetime, name)


class VirtualDatetime(metaclass=_VirtualDatetimeType):
    """`datetime` with a virtual `now`. Its instances are those of `datetime`."""

    @staticmethod
    def now(tz: tzinfo | None = None) -> datetime:
        if _running is None:
            return datetime.now(tz)
        return datetime.fromtimestamp(read_wall_clock(_running), tz)
