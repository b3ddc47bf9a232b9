"""Readings of the screen during trouble, and the figures computed from them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from bench.trouble.kinds import Cause

KNOWN_SECONDS = 10.0
# The console's hysteresis of 5 s, less the time between two readings and what a busy host delays one of them by.
CHANGE_SECONDS = 4.0
HEADER = ("kind", "named s", "share", "changes", "incidents", "notified", "clicks", "taps", "ended s", "first action")


@dataclass(frozen=True)
class Reading:
    """Texts of the page at one time.

    at: seconds since the trouble began; is_effective: whether it has had an effect by then, so that its cause can be
    known.
    """

    at: float
    headlines: list[str]
    impact: list[str]
    actions: list[str]
    strip: str
    is_effective: bool = True

    @property
    def is_calm(self) -> bool:
        """Return whether no problem is shown; a notice may say how the last one ended."""
        return all(text.startswith(("Normal:", "Notice:")) for text in self.headlines[:1])


@dataclass(frozen=True)
class Outcome:
    """The figures of a trouble; None: it did not come to that."""

    kind: str
    causes: int
    needs_action: bool
    named_seconds: float | None
    named_share: float
    headline_changes: int
    incidents: list[str]
    notifications: int
    first_action: str
    clicks: int | None
    taps: int | None
    ended_seconds: float | None
    readings: list[Reading]

    def document(self) -> dict[str, Any]:
        return asdict(self)


def find_named_seconds(readings: Sequence[Reading], causes: Sequence[Cause]) -> float | None:
    """Return when all causes were named for the first time."""
    return next((reading.at for reading in readings if _names_all(reading, causes)), None)


def compute_named_share(readings: Sequence[Reading], causes: Sequence[Cause], needs_action: bool = True) -> float:
    """Return the share of readings that name all causes, from KNOWN_SECONDS after the first effect on.

    What ends without an action may be over: then no other problem may be named.
    """
    begun = max((reading.at for reading in readings if not reading.is_effective), default=0.0)
    known = [reading for reading in readings if reading.at >= begun + KNOWN_SECONDS]
    right = [_names_all(reading, causes) or (not needs_action and reading.is_calm) for reading in known]
    return sum(right) / len(known) if known else 0.0


def _names_all(reading: Reading, causes: Sequence[Cause]) -> bool:
    return all(cause.is_named_by(reading.headlines) for cause in causes)


def count_headline_changes(readings: Sequence[Reading]) -> int:
    """Return the most changes of the first headline within CHANGE_SECONDS."""
    firsts = [(reading.at, reading.headlines[0] if reading.headlines else "") for reading in readings]
    changed = [at for (_, before), (at, text) in pairwise(firsts) if text != before]
    return max((sum(at <= other < at + CHANGE_SECONDS for other in changed) for at in changed), default=0)


def format_table(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes as a table in Markdown."""
    lines = [f"| {' | '.join(HEADER)} |", f"|{'---|' * len(HEADER)}"]
    for row in outcomes:
        cells = (
            row.kind,
            _format(row.named_seconds),
            f"{100 * row.named_share:.0f} %",
            str(row.headline_changes),
            str(len(row.incidents)),
            str(row.notifications),
            _format(row.clicks) if row.needs_action else "-",
            _format(row.taps) if row.needs_action else "-",
            _format(row.ended_seconds),
            row.first_action or "-",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _format(value: float | None) -> str:
    return "never" if value is None else f"{value:g}"
