"""A clock that is off: what its host writes has a wrong time, and what it times comes early or late."""

from collections.abc import Iterator

from workers.snapshot.states.judgement import Fault

MOST_CLOCK_SECONDS = 60.0


def clock_fault(name: str, ahead_seconds: float) -> Iterator[Fault]:
    """Where it is off by more than a minute."""
    if abs(ahead_seconds) > MOST_CLOCK_SECONDS:
        side = "ahead of" if ahead_seconds > 0 else "behind"
        sentence = f"The clock of {name} is {abs(ahead_seconds):.0f} s {side} the control server's."
        yield Fault("warning", sentence, "Have both hosts take their time from NTP (chrony, timesyncd).")
