"""The age of what a terminal shows, and whether it is live.

Pure: times are arguments; their clock can't jump.
"""

from dataclasses import dataclass, replace

from console.display.formats import format_value
from workers.documents.snapshot import SILENT_AFTER_SECONDS, Snapshot

DATE_SECONDS = 1.0  # an answer has its time in whole seconds


@dataclass(frozen=True)
class Exchanges:
    """Requests and answers.

    snapshot: the newest; aged_at, age_seconds: its maximum age, and when it was determined; answered_at: the last
    answer, None before the first; error: why the last call failed, "" if it did not.
    """

    began_at: float
    snapshot: Snapshot | None = None
    aged_at: float = 0.0
    age_seconds: float = 0.0
    answered_at: float | None = None
    error: str = ""

    def add_snapshot(self, snapshot: Snapshot, console_now: float, now: float) -> "Exchanges":
        """Return the state after an answer.

        The snapshot's age is at most what the console's clock says, and at most the time since an older one was still
        the newest. A known snapshot ages by our own clock: the console's may be behind the observer's, or have been set
        back.
        """
        age, before = max(0.0, console_now + DATE_SECONDS - (snapshot.at or 0.0)), self.snapshot
        if before is not None and self.answered_at is not None:
            if (before.seq, before.at) == (snapshot.seq, snapshot.at):
                age = self.compute_age(now)
            elif (before.at or 0.0) < (snapshot.at or 0.0):
                age = min(age, now - self.answered_at)
        return replace(self, snapshot=snapshot, aged_at=now, age_seconds=age, answered_at=now, error="")

    def add_error(self, error: str) -> "Exchanges":
        """Return the state after a failed call: the snapshot stays, and ages."""
        return replace(self, error=error)

    def compute_age(self, now: float) -> float:
        """Return the maximum age of the snapshot, s."""
        return self.age_seconds + now - self.aged_at


@dataclass(frozen=True)
class ConnectionState:
    """word: of the connection; sentence: what it means for the display."""

    word: str
    sentence: str
    is_live: bool


def describe_connection(seen: Exchanges, now: float) -> ConnectionState:
    """Return the state: live only while answers arrive and contain a recent snapshot."""
    if seen.snapshot is None:
        waited = format_value(now - seen.began_at, "age")
        return ConnectionState("Not connected", seen.error or f"no response for {waited}", is_live=False)
    age = seen.compute_age(now)
    shown = f"all data shown is {format_value(age, 'age')} old"
    unanswered = now - (seen.answered_at if seen.answered_at is not None else seen.began_at)
    if seen.error:
        return ConnectionState("Disconnected", f"{shown}. {seen.error}", is_live=False)
    if unanswered >= SILENT_AFTER_SECONDS:
        waited = format_value(unanswered, "age")
        return ConnectionState("Disconnected", f"{shown}. No response for {waited}.", is_live=False)
    if age >= SILENT_AFTER_SECONDS:
        return ConnectionState("Observer not responding", f"{shown}. The console is responding.", is_live=False)
    return ConnectionState("Live", f"{format_value(age, 'age')} old", is_live=True)
