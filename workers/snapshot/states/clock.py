"""A clock that is off: its host writes wrong times, and its timers are early or late."""

from collections.abc import Iterator

from workers.snapshot.states.judgement import Fault

MAX_CLOCK_SECONDS = 60.0


def clock_fault(name: str, ahead_seconds: float) -> Iterator[Fault]:
    """Return the fault where it is off by more than a minute."""
    if abs(ahead_seconds) > MAX_CLOCK_SECONDS:
        side = "ahead of" if ahead_seconds > 0 else "behind"
        sentence = f"The clock of {name} is {abs(ahead_seconds):.0f} s {side} the control server's."
        yield Fault("warning", sentence, "Synchronize both hosts' clocks with NTP (chrony, timesyncd).")
