"""How old what a terminal shows is, and whether it is live. Pure: times come in; their clock can't jump."""

from dataclasses import dataclass, replace

from console.display.formats import formatted
from workers.documents.snapshot import SILENT_AFTER_SECONDS, Snapshot

DATE_SECONDS = 1.0  # an answer names its time in whole seconds


@dataclass(frozen=True)
class Seen:
    """What was asked, and what came. snapshot: the newest; aged_at, age_seconds: how old it was at most, and
    when that was so; answered_at: the last answer, None before the first; error: why the last call failed,
    "" where it did not.
    """

    began_at: float
    snapshot: Snapshot | None = None
    aged_at: float = 0.0
    age_seconds: float = 0.0
    answered_at: float | None = None
    error: str = ""

    def add_snapshot(self, snapshot: Snapshot, console_now: float, now: float) -> "Seen":
        """After an answer. Its age is at most what the console's clock says, and at most the time since an
        older one was still the newest. One that is known grows old by our own clock: the console's may be
        behind the observer's, or have been set back.
        """
        age, before = max(0.0, console_now + DATE_SECONDS - (snapshot.at or 0.0)), self.snapshot
        if before is not None and self.answered_at is not None:
            if (before.seq, before.at) == (snapshot.seq, snapshot.at):
                age = self.age_at(now)
            elif (before.at or 0.0) < (snapshot.at or 0.0):
                age = min(age, now - self.answered_at)
        return replace(self, snapshot=snapshot, aged_at=now, age_seconds=age, answered_at=now, error="")

    def add_error(self, error: str) -> "Seen":
        """After a call that failed: what is shown stays, and grows old."""
        return replace(self, error=error)

    def age_at(self, now: float) -> float:
        """How old the snapshot is at most, s."""
        return self.age_seconds + now - self.aged_at


@dataclass(frozen=True)
class ConnectionState:
    """word: of the connection; sentence: what it means for what is shown."""

    word: str
    sentence: str
    is_live: bool


def freshness(seen: Seen, now: float) -> ConnectionState:
    """Live only while answers come and what they bring is young."""
    if seen.snapshot is None:
        waited = formatted(now - seen.began_at, "age")
        return ConnectionState("Not connected", seen.error or f"no answer for {waited}", is_live=False)
    age = seen.age_at(now)
    shown = f"all that is shown is {formatted(age, 'age')} old"
    unanswered = now - (seen.answered_at if seen.answered_at is not None else seen.began_at)
    if seen.error:
        return ConnectionState("Disconnected", f"{shown}. {seen.error}", is_live=False)
    if unanswered >= SILENT_AFTER_SECONDS:
        waited = formatted(unanswered, "age")
        return ConnectionState("Disconnected", f"{shown}. No answer for {waited}.", is_live=False)
    if age >= SILENT_AFTER_SECONDS:
        return ConnectionState("Observer silent", f"{shown}. The console answers.", is_live=False)
    return ConnectionState("Live", f"{formatted(age, 'age')} old", is_live=True)
