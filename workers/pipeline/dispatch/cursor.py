"""The cursor: how far the queues were dispatched, and how far event time has advanced. Pure arithmetic.

The watermark promises that no event at or before it is still to be dispatched, except late ones. It is the progress of
the slowest container minus the allowed lateness. A container that was dispatched completely holds nothing back, and the
watermark never goes back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from common.errors import BadInput
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.tiers.checkpoint import NEW_START

VERSION = 2
BEGINNING = "0-0"

Entry = tuple[str, int, int]  # (entry id, events, newest event time in µs)


@dataclass(frozen=True)
class Scan:
    """The entries of a container after those dispatched. complete: no further entries follow these."""

    entries: tuple[Entry, ...]
    complete: bool


@dataclass(frozen=True)
class Cursor:
    """The position up to which the queues were dispatched.

    tick: number of the dispatch. ids: container → last entry dispatched. newest_us: container → newest event time
    dispatched, at most the time of the clock; furthest_us: of all containers, including times ahead of the clock. owed:
    replica → events still owed to it by its share. skipped: nodes that did not answer.
    """

    tick: int = 0
    ids: Mapping[str, str] = field(default_factory=dict)
    newest_us: Mapping[str, int] = field(default_factory=dict)
    watermark_us: int | None = None
    furthest_us: int = 0
    owed: Mapping[str, float] = field(default_factory=dict)
    controls: Controls = field(default_factory=Controls)
    skipped: tuple[str, ...] = ()

    @property
    def latest_us(self) -> int | None:
        return max(self.newest_us.values(), default=None)

    def to_document(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "tick": self.tick,
            "ids": dict(self.ids),
            "newest_us": dict(self.newest_us),
            "watermark_us": self.watermark_us,
            "furthest_us": self.furthest_us,
            "owed": dict(self.owed),
            "controls": self.controls.to_document(),
            "skipped": list(self.skipped),
        }

    @classmethod
    def from_document(cls, document: Any) -> "Cursor":
        """Build from a stored document. Raises `BadInput` if it is of another version."""
        check_version(document, "cursor")
        return cls(
            document["tick"],
            document["ids"],
            document["newest_us"],
            document["watermark_us"],
            document.get("furthest_us", 0),  # an earlier version did not store it
            document["owed"],
            Controls().apply_changes(document["controls"]),
            tuple(document["skipped"]),
        )


def check_version(document: Any, what: str) -> None:
    """Raise `BadInput` if a stored document is of another version: its content must not be used."""
    version = document.get("version") if isinstance(document, dict) else None
    if version == VERSION:
        return
    if isinstance(version, int) and version > VERSION:
        advice = "Run the newer version of Weir again, or start over."
    else:
        advice = "The application can't continue from it."
    raise BadInput(
        f"{what}.version",
        f"has version {version!r}; this version of Weir reads version {VERSION}. {advice} {NEW_START}",
    )


def admit(scans: Mapping[str, Scan], limit_events: int, turn: int = 0) -> dict[str, tuple[Entry, ...]]:
    """Select the entries to dispatch: one from each container in turn until the limit is reached.

    The last entry may exceed the limit, since blocks stay whole. turn: counts the calls. Each call starts with another
    container, so that a limit of a few blocks starves none of them.
    """
    taken = dict.fromkeys(scans, 0)
    total = 0
    names = sorted(scans)
    first = turn % max(1, len(names))
    waiting = [name for name in (*names[first:], *names[:first]) if scans[name].entries]
    while waiting and total < limit_events:
        for name in list(waiting):
            if total >= limit_events:
                break
            total += scans[name].entries[taken[name]][1]
            taken[name] += 1
            if taken[name] == len(scans[name].entries):
                waiting.remove(name)
    return {name: scans[name].entries[:count] for name, count in taken.items() if count}


def advance(
    start: Cursor,
    scans: Mapping[str, Scan],
    admitted: Mapping[str, tuple[Entry, ...]],
    controls: Controls,
    now_us: int,
    skipped: Iterable[str] = (),
    holding: Iterable[str] = (),
) -> Cursor:
    """Return the cursor after the admitted entries, or `start` itself if there are none.

    skipped: nodes that did not answer. holding: containers that did not answer and may still contain earlier events. An
    event time in the future counts as now, so that one wrong clock can't make all other events late.
    """
    if not admitted:
        return start
    newest_us, furthest_us = dict(start.newest_us), start.furthest_us
    for name, entries in admitted.items():
        newest = max(entry[2] for entry in entries)
        newest_us[name] = max(newest_us.get(name, 0), min(now_us, newest))
        furthest_us = max(furthest_us, newest)
    unread = [name for name, scan in scans.items() if not _is_read(scan, admitted.get(name, ()))]
    return replace(
        start,
        tick=start.tick + 1,
        ids={**start.ids, **{name: entries[-1][0] for name, entries in admitted.items()}},
        newest_us=newest_us,
        furthest_us=furthest_us,
        watermark_us=_compute_watermark(start, newest_us, {*unread, *holding}, controls),
        controls=controls,
        skipped=tuple(sorted(skipped)),
    )


def close(start: Cursor, controls: Controls, now_us: int) -> Cursor:
    """Advance the watermark to the newest event after a silence, so that no event waits for order forever.

    An event time ahead of the clock counts once the clock has reached it. The waiting events are processed with the
    current controls: an expired shedding table drops none of them.
    """
    latest_us = start.latest_us
    if latest_us is not None and latest_us < start.furthest_us <= now_us:
        latest_us = start.furthest_us
    if latest_us is None or (start.watermark_us is not None and start.watermark_us >= latest_us):
        return start
    return replace(start, tick=start.tick + 1, watermark_us=latest_us, controls=controls)


def _is_read(scan: Scan, taken: tuple[Entry, ...]) -> bool:
    return scan.complete and len(taken) == len(scan.entries)


def _compute_watermark(
    start: Cursor, newest_us: Mapping[str, int], holders: set[str], controls: Controls
) -> int | None:
    """Return the progress of the slowest holder minus the lateness.

    A holder from which nothing was ever read keeps the watermark where it is.
    """
    if any(name not in newest_us for name in holders):
        return start.watermark_us
    progress_us = min((newest_us[name] for name in holders), default=max(newest_us.values()))
    candidate_us = progress_us - controls.lateness_us
    return candidate_us if start.watermark_us is None else max(start.watermark_us, candidate_us)
