"""How far the pipeline has read, and how far event time has come: a batch's end offset. Pure arithmetic.

The watermark promises that no event at or before it is still to come (but for late ones). It is the slowest
container's progress less the allowed lateness; a container of which everything has been read holds nothing
back, and the watermark never goes back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from queues.errors import BadInput
from workers.pipeline.controls import Controls

VERSION = 1
BEGINNING = "0-0"

Entry = tuple[str, int, int]  # (entry id, events, newest event time in µs)


@dataclass(frozen=True)
class Survey:
    """What a container has after what was read. complete: there is nothing behind these entries."""

    entries: tuple[Entry, ...]
    complete: bool


@dataclass(frozen=True)
class Offset:
    """ids: container → last entry read. newest_us: container → newest event time read. events: container →
    events in this batch. read_from and
    previous_watermark_us are those of the offset before: an offset says all of its batch. skipped: nodes that
    did not answer.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    newest_us: Mapping[str, int] = field(default_factory=dict)
    events: Mapping[str, int] = field(default_factory=dict)
    watermark_us: int | None = None
    previous_watermark_us: int | None = None
    controls: Controls = field(default_factory=Controls)
    skipped: tuple[str, ...] = ()

    @property
    def events_total(self) -> int:
        return sum(self.events.values())

    @property
    def latest_us(self) -> int | None:
        return max(self.newest_us.values(), default=None)

    def ranges(self, start: "Offset") -> dict[str, tuple[str, str]]:
        """Per container with something new: (read after, read through)."""
        return {
            container: (start.ids.get(container, BEGINNING), through)
            for container, through in self.ids.items()
            if through != start.ids.get(container, BEGINNING)
        }

    def to_document(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "ids": dict(self.ids),
            "newest_us": dict(self.newest_us),
            "events": dict(self.events),
            "watermark_us": self.watermark_us,
            "previous_watermark_us": self.previous_watermark_us,
            "controls": self.controls.to_document(),
            "skipped": list(self.skipped),
        }

    @classmethod
    def from_document(cls, document: Any) -> "Offset":
        """Raises BadInput when the offset is not of this version."""
        if not isinstance(document, dict) or document.get("version") != VERSION:
            version = document.get("version") if isinstance(document, dict) else None
            raise BadInput("offset.version", f"is {version!r}; this program reads {VERSION}. {NEW_START}")
        return cls(
            document["ids"],
            document["newest_us"],
            document["events"],
            document["watermark_us"],
            document["previous_watermark_us"],
            Controls().changed(document["controls"]),
            tuple(document["skipped"]),
        )


NEW_START = "Start once with --reset to begin anew at the oldest events still waiting."


def admit(surveys: Mapping[str, Survey], limit_events: int) -> dict[str, tuple[Entry, ...]]:
    """Which entries a batch takes: one from each container in turn until the limit is reached (the last may
    pass it: blocks stay whole).
    """
    taken = dict.fromkeys(surveys, 0)
    total = 0
    waiting = [name for name in sorted(surveys) if surveys[name].entries]
    while waiting and total < limit_events:
        for name in list(waiting):
            if total >= limit_events:
                break
            total += surveys[name].entries[taken[name]][1]
            taken[name] += 1
            if taken[name] == len(surveys[name].entries):
                waiting.remove(name)
    return {name: surveys[name].entries[:count] for name, count in taken.items() if count}


def advance(
    start: Offset,
    surveys: Mapping[str, Survey],
    controls: Controls,
    now_us: int,
    skipped: Iterable[str] = (),
    holding: Iterable[str] = (),
) -> Offset:
    """The end offset of the next batch; `start` itself when there is nothing new.

    skipped: nodes that did not answer. holding: containers that did not answer and may still hold earlier
    events. An event time in the future counts as now, so that one wrong clock can't make everybody else late.
    """
    admitted = admit(surveys, controls.admit_events_per_batch)
    if not admitted:
        return start
    newest_us = dict(start.newest_us)
    for name, entries in admitted.items():
        newest_us[name] = max(newest_us.get(name, 0), min(now_us, max(entry[2] for entry in entries)))
    unread = [name for name, survey in surveys.items() if not _is_read(survey, admitted.get(name, ()))]
    return Offset(
        ids={**start.ids, **{name: entries[-1][0] for name, entries in admitted.items()}},
        newest_us=newest_us,
        events={name: sum(entry[1] for entry in entries) for name, entries in admitted.items()},
        watermark_us=_watermark(start, newest_us, {*unread, *holding}, controls),
        previous_watermark_us=start.watermark_us,
        controls=controls,
        skipped=tuple(sorted(skipped)),
    )


def close(start: Offset) -> Offset:
    """After a silence: lets the watermark come up to the newest event, so that what waits for order is not
    kept for ever.
    """
    latest_us = start.latest_us
    if latest_us is None or (start.watermark_us is not None and start.watermark_us >= latest_us):
        return start
    return replace(start, events={}, watermark_us=latest_us, previous_watermark_us=start.watermark_us)


def _is_read(survey: Survey, taken: tuple[Entry, ...]) -> bool:
    return survey.complete and len(taken) == len(survey.entries)


def _watermark(
    start: Offset, newest_us: Mapping[str, int], holders: set[str], controls: Controls
) -> int | None:
    """The slowest holder's progress less the lateness. A holder nothing was ever read of holds the watermark
    where it is.
    """
    if any(name not in newest_us for name in holders):
        return start.watermark_us
    progress_us = min((newest_us[name] for name in holders), default=max(newest_us.values()))
    candidate_us = progress_us - controls.lateness_us
    return candidate_us if start.watermark_us is None else max(start.watermark_us, candidate_us)
