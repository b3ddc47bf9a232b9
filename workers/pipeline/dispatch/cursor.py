"""The cursor: how far the queues were dispatched, and how far event time has advanced. Pure arithmetic.

The watermark promises that no event at or before it is still to be dispatched, except late ones. It is the progress of
the slowest container minus the allowed lateness. A container that was dispatched completely holds nothing back, and the
watermark never goes back. If all containers were dispatched completely, and all producers publish in order, it is the
progress of the slowest producer, without lateness (`dispatch.producer_progress`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from common.errors import BadInput
from common.stored_document import StoredDocument, convert, convert_to_plain, replace_fields
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.producer_progress import ProducerProgress

VERSION = 2
BEGINNING = "0-0"
NEW_START = "Start once with --reset to start over at the oldest events still waiting."

Producers = Mapping[str, tuple[str, ...]]  # queue → its producers, if the application declares them


class Entry(NamedTuple):
    """An entry of a container: a block of events."""

    entry_id: str
    events: int
    newest_us: int
    block_id: str = ""


@dataclass(frozen=True)
class Scan:
    """The entries of a container after those dispatched. complete: no further entries follow these."""

    entries: tuple[Entry, ...]
    complete: bool


class VersionedDocument(StoredDocument, frozen=True, kw_only=True):
    """A document that is stored or checkpointed: one of another version must not be used."""

    what: ClassVar[str]
    version: int = VERSION

    def to_document(self) -> dict[str, Any]:
        return convert_to_plain(self)

    @classmethod
    def from_document(cls, document: object) -> Self:
        """Build from a stored document. Raises `BadInput` if it is of another version."""
        version = document.get("version") if isinstance(document, dict) else None
        if version == VERSION:
            return convert(cls, document, cls.what)
        if isinstance(version, int) and version > VERSION:
            advice = "Run the newer version of Weir again, or start over."
        else:
            advice = "The application can't continue from it."
        raise BadInput(
            f"{cls.what}.version",
            f"has version {version!r}; this version of Weir reads version {VERSION}. {advice} {NEW_START}",
        )


class Cursor(VersionedDocument, frozen=True):
    """The position up to which the queues were dispatched.

    tick: number of the dispatch. ids: container → last entry dispatched. newest_us: container → newest event time
    dispatched, at most the time of the clock; furthest_us: of all containers, including times ahead of the clock. owed:
    replica → events still owed to it by its share. skipped: nodes that did not answer. producers: progress of the
    declared producers.
    """

    what = "cursor"
    tick: int = 0
    ids: Mapping[str, str] = {}
    newest_us: Mapping[str, int] = {}
    watermark_us: int | None = None
    furthest_us: int = 0
    owed: Mapping[str, float] = {}
    controls: Controls = Controls()
    skipped: tuple[str, ...] = ()
    producers: ProducerProgress = ProducerProgress()


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
            total += scans[name].entries[taken[name]].events
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
    producers: Producers | None = None,
) -> Cursor:
    """Return the cursor after the admitted entries, or `start` itself if there are none.

    skipped: nodes that did not answer. holding: containers that did not answer and may still contain earlier events. An
    event time in the future counts as now, so that one wrong clock can't make all other events late. producers: all
    producers of the queues, if they are declared.
    """
    if not admitted:
        return start
    newest_us, furthest_us = dict(start.newest_us), start.furthest_us
    for name, entries in admitted.items():
        newest = max(entry.newest_us for entry in entries)
        newest_us[name] = max(newest_us.get(name, 0), min(now_us, newest))
        furthest_us = max(furthest_us, newest)
    unread = {
        name for name, scan in scans.items() if not scan.complete or len(admitted.get(name, ())) < len(scan.entries)
    }
    holders, watermark_us = {*unread, *holding}, start.watermark_us
    # A holder from which nothing was ever read keeps the watermark where it is.
    if all(name in newest_us for name in holders):
        progress_us = min((newest_us[name] for name in holders), default=max(newest_us.values()))
        candidate_us = progress_us - controls.lateness_us
        watermark_us = candidate_us if watermark_us is None else max(watermark_us, candidate_us)
    progress = start.producers
    if producers:
        for name, entries in admitted.items():
            blocks = [(entry.block_id, entry.newest_us) for entry in entries]
            progress = progress.add(name.partition("/")[0], blocks, now_us, controls.lateness_us)
        settled_us = None if holders else progress.compute_settled_us(producers, now_us)
        if settled_us is not None:
            watermark_us = settled_us if watermark_us is None else max(watermark_us, settled_us)
        progress = progress.skip_missing(watermark_us, controls.lateness_us)
    return replace_fields(
        start,
        tick=start.tick + 1,
        ids={**start.ids, **{name: entries[-1].entry_id for name, entries in admitted.items()}},
        newest_us=newest_us,
        furthest_us=furthest_us,
        watermark_us=watermark_us,
        controls=controls,
        skipped=tuple(sorted(skipped)),
        producers=progress,
    )


def close(start: Cursor, controls: Controls, now_us: int) -> Cursor:
    """Advance the watermark to the newest event after a silence, so that no event waits for order forever.

    An event time ahead of the clock counts once the clock has reached it. The waiting events are processed with the
    current controls: an expired shedding table drops none of them.
    """
    latest_us = max(start.newest_us.values(), default=None)
    if latest_us is not None and latest_us < start.furthest_us <= now_us:
        latest_us = start.furthest_us
    if latest_us is None or (start.watermark_us is not None and start.watermark_us >= latest_us):
        return start
    return replace_fields(start, tick=start.tick + 1, watermark_us=latest_us, controls=controls)
