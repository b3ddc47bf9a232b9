"""Parts that appeared at a plant, left it, or changed their rate before an instant, found with few snapshots.

Snapshots are read 0, 1, 2, 4 … minutes before; where two adjacent ones differ, the step between them is halved until it
is as short as RESOLUTION of its distance (at least 5 s). Three hours take about ten reads, and a change about three
more; what appeared and left between two reads is not seen. Changes within SETTLING_SECONDS of a plant's first snapshot
are ignored, too.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from common.stored_document import BadDocument
from workers.documents.queues import PIPELINE_PRODUCER
from workers.documents.snapshot import Snapshot
from workers.history.snapshot_archive import REACH_SECONDS, snapshot_at

FIRST_SECONDS = 60.0
RESOLUTION, MIN_SECONDS = 1 / 8, 5.0
GONE_SECONDS = 30.0  # gone after this silence
JUMP, MIN_JUMP = 2.0, 10.0  # a rate that doubles or halves, by at least this many events/s
SETTLING_SECONDS = 300.0  # from a plant's first snapshot until all its parts have been seen
MAX_READS = 60
SETTLING = ("came", "rose", "fell")  # changes before this time are ignored
How = Literal["came", "left", "rose", "fell", "restarted"]
Read = Callable[[float], Snapshot | None]


@dataclass(frozen=True)
class Appearance:
    """A change of a part at an instant (seconds since 1970).

    part: as in `workers.plants.influences`; before, after: events/s of a rate that changed, else None.
    """

    part: str
    how: How
    at: float
    before: float | None = None
    after: float | None = None

    @property
    def times(self) -> float:
        """Return the change of a rate relative to the smallest that counts; 1 for other changes."""
        if self.how not in ("rose", "fell") or self.before is None or self.after is None:
            return 1.0
        greater, less = max(self.before, self.after), min(self.before, self.after)
        return max(1.0, greater / max(less, MIN_JUMP / JUMP) / JUMP)


@dataclass(frozen=True)
class ShownParts:
    """The content of a snapshot: parts with their rate (None: without one), and the restart count of each."""

    rates: Mapping[str, float | None]
    restarts: Mapping[str, int]


def list_appearances(
    data: Path, since: float, until: float, clock: Callable[[], float] = time.time
) -> list[Appearance]:
    """Return the changes between two instants (seconds since 1970), the newest first."""
    span = round(since), round(until)
    # Frames of the last minutes are still being written: do not cache their contents as missing.
    if clock() - until > REACH_SECONDS:
        return list(_load_appearances(data, *span))
    return list(_load_appearances.__wrapped__(data, *span))


@lru_cache(maxsize=64)
def _load_appearances(data: Path, since: int, until: int) -> tuple[Appearance, ...]:
    """Return the changes in a finished past, which is read once and cached."""

    def read(at: float) -> Snapshot | None:
        try:
            return snapshot_at(data, at)
        except (BadDocument, OSError):
            return None

    return tuple(find_in_snapshots(read, since, until))


def find_in_snapshots(read: Read, since: float, until: float) -> list[Appearance]:
    """Return the changes from any source of snapshots."""
    reads: dict[float, ShownParts | None] = {}

    def read_parts(at: float) -> ShownParts | None:
        if at not in reads:
            snapshot = read(at) if len(reads) < MAX_READS else None
            reads[at] = build_shown_parts(snapshot) if snapshot else None
        return reads[at]

    instants = list(_iterate_instants(since, until))
    known = [(at, shown) for at in instants if (shown := read_parts(at)) is not None]
    seen_parts: list[Appearance] = []
    for (late_at, late), (early_at, early) in itertools.pairwise(known):
        seen_parts += [
            _locate_appearances(read_parts, difference, early_at, late_at, until)
            for difference in _iterate_differences(early, late, late_at)
        ]
    oldest_at = known[-1][0] if known else since
    settled_at = oldest_at + SETTLING_SECONDS if oldest_at > since else since
    news = [appearance for appearance in seen_parts if appearance.how not in SETTLING or appearance.at > settled_at]
    return sorted(news, key=lambda appearance: -appearance.at)


def build_shown_parts(snapshot: Snapshot) -> ShownParts:
    """Return publishing producers, reporting nodes and hosts, and the types that applications read.

    The producer of an application's complex events is excluded: it comes and goes with the application and its matches.
    """
    rates: dict[str, float | None] = {}
    restarts: dict[str, int] = {}
    for name, producer in snapshot.producers.items():
        if name.startswith(PIPELINE_PRODUCER):
            continue
        if producer.age_seconds is None or producer.age_seconds < GONE_SECONDS:
            rates[f"producer/{name}"] = producer.in_per_second
    for name, node in snapshot.nodes.items():
        if node.state is not None and not node.stale:
            rates[f"node/{name}"] = None
    for name, host in snapshot.hosts.items():
        if host.age_seconds is None or host.age_seconds < GONE_SECONDS:
            rates[f"host/{name}"] = None
    for name, application in snapshot.pipeline.applications.items():
        restarts[f"application/{name}"] = application.restarts.count
        for pattern in application.patterns.values():
            for kind, per_second in pattern.types.items():
                if per_second > 0:
                    rates[f"type/{name}/{kind}"] = per_second
    return ShownParts(rates, restarts)


def _iterate_instants(since: float, until: float) -> Iterator[float]:
    yield until
    back = FIRST_SECONDS
    while until - back > since:
        yield until - back
        back *= 2
    yield since


def _iterate_differences(early: ShownParts, late: ShownParts, at: float) -> Iterator[Appearance]:
    for part, rate in late.rates.items():
        if part not in early.rates:
            yield Appearance(part, "came", at, None, rate)
        elif (how := _jump(early.rates[part], rate)) is not None:
            yield Appearance(part, how, at, early.rates[part], rate)
    yield from (Appearance(part, "left", at, rate) for part, rate in early.rates.items() if part not in late.rates)
    for part, count in late.restarts.items():
        if count > early.restarts.get(part, count):
            yield Appearance(part, "restarted", at)


def _jump(before: float | None, after: float | None) -> How | None:
    if before is None or after is None or abs(after - before) < MIN_JUMP:
        return None
    if after >= JUMP * before:
        return "rose"
    return "fell" if before >= JUMP * after else None


def _locate_appearances(
    parts_at: Callable[[float], ShownParts | None], found: Appearance, early_at: float, late_at: float, until: float
) -> Appearance:
    """Return the changes, each at the first instant at which it is visible, as precisely as needed."""
    while late_at - early_at > max(MIN_SECONDS, RESOLUTION * (until - early_at)):
        middle = (early_at + late_at) / 2
        shown = parts_at(middle)
        if shown is None:
            break
        if _is_so(found, shown):
            late_at = middle
        else:
            early_at = middle
    return Appearance(found.part, found.how, late_at, found.before, found.after)


def _is_so(found: Appearance, shown: ShownParts) -> bool:
    """Return whether the change has happened by then."""
    if found.how in ("came", "left"):
        return (found.part in shown.rates) == (found.how == "came")
    if found.how == "restarted":
        return False  # the number alone does not identify which one changed
    rate = shown.rates.get(found.part)
    middle = ((found.before or 0.0) + (found.after or 0.0)) / 2
    return rate is not None and (rate >= middle) == (found.how == "rose")
