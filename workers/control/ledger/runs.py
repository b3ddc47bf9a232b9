"""The ledger as people read it: a line for each notable decision, and counts of the ticks in between.

Most ticks do nothing, and some laws set their actuator at every tick. A line is a notable decision:

- it acted, and its law does not act at every tick (`Display.is_news`);
- it was judged harmful;
- its mode differs from the previous tick of the same loop, or it is limited and the previous one was not.

All other ticks between two lines form one run with a count, a first time, and a last time. One index (`ledger_filters`)
has all columns for this, and a page reads at most `MAX_READ` entries, so its cost does not grow with the plant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import OuterRef, QuerySet, Subquery

from workers.control.kinds.registry import find_display, get_rest_seconds
from workers.control.tick import compute_late_seconds
from workers.models import LedgerEntry, Loop

MAX_READ, MAX_OF_A_LOOP = 10_000, 500
FIRST_READ = 1_000  # usually enough for a page
COLUMNS = ("pk", "loop_id", "verdict", "mode", "limited_by", "acted", "at", "folded_ticks", "folded_since")


class Tick(NamedTuple):
    """Columns of an entry that the index has.

    folded_ticks others are folded into it, the first at folded_since.
    """

    pk: int
    loop: int
    verdict: str
    mode: str
    limited_by: str | None
    acted: bool
    at: datetime
    folded_ticks: int = 0
    folded_since: datetime | None = None


@dataclass
class TickRun:
    """Adjacent ticks that are not notable.

    routine: ticks that set what their law sets at every tick; late: the number of late ticks, and late_seconds the
    maximum delay.
    """

    newest: int
    oldest: int
    since: datetime
    until: datetime
    no_action: int = 0
    routine: int = 0
    late: int = 0
    late_seconds: float = 0.0
    loops: set[int] = field(default_factory=set)

    @property
    def count(self) -> int:
        return self.no_action + self.routine

    @property
    def is_short(self) -> bool:
        """Return whether the run lies within one minute."""
        return self.since.replace(second=0, microsecond=0) == self.until.replace(second=0, microsecond=0)

    @property
    def end(self) -> datetime:
        """Return the first whole second after the run, for a link to its ticks."""
        return self.until.replace(microsecond=0) + timedelta(seconds=1)

    def add(self, tick: Tick, late_seconds: float) -> None:
        """Add a tick that is older than all before."""
        self.oldest, self.since = tick.pk, tick.folded_since or tick.at
        self.no_action += (not tick.acted) * (1 + tick.folded_ticks)
        self.routine += tick.acted
        self.late += late_seconds > 0.0
        self.late_seconds = max(self.late_seconds, late_seconds)
        self.loops.add(tick.loop)

    def merge(self, other: "TickRun") -> "TickRun":
        return TickRun(
            max(self.newest, other.newest),
            min(self.oldest, other.oldest),
            min(self.since, other.since),
            max(self.until, other.until),
            self.no_action + other.no_action,
            self.routine + other.routine,
            self.late + other.late,
            max(self.late_seconds, other.late_seconds),
            self.loops | other.loops,
        )


@dataclass(frozen=True)
class TickRunPage:
    """Lines, newest first: entries and runs.

    older, newer: the values for `before` and `after`, None at the ends.
    """

    rows: list[LedgerEntry | TickRun]
    older: int | None
    newer: int | None
    alone: bool = False  # the page has all lines


class _Lines(NamedTuple):
    """The first lines of ticks, as entry ids and runs.

    last: the last id in them; is_final: more ticks than were read would not change these lines.
    """

    rows: list[int | TickRun]
    last: int | None
    is_final: bool


@dataclass(frozen=True)
class _Loops:
    """Intervals (s), permitted additional pauses (s), and laws that act at every tick, of all loops."""

    intervals: Mapping[int, tuple[float, float]]
    routine: frozenset[int]


def load_page(
    chosen: QuerySet[LedgerEntry], lines: int, before: int | None = None, after: int | None = None
) -> TickRunPage:
    """Return the newest lines, those older than the id `before`, or those that end above the id `after`."""
    if after is not None and (above := _list_lines_above(chosen, lines, after)) is not None:
        return above
    older = chosen if before is None else chosen.filter(pk__lt=before)
    read = _read_ticks(older, FIRST_READ)
    found = _fold_lines(read[:FIRST_READ], lines)
    if len(read) > FIRST_READ and not found.is_final:
        read = _read_ticks(older, MAX_READ)
        found = _fold_lines(read[:MAX_READ], lines)
    left = bool(read) and found.last != read[-1].pk
    newest = read[0].pk if read and before is not None else None
    return TickRunPage(load_entries(found.rows), found.last if left else None, newest)


def _read_ticks(chosen: QuerySet[LedgerEntry], most: int) -> list[Tick]:
    """Return the newest ticks, and one more than wanted if there are older ones."""
    return [Tick(*row) for row in chosen.order_by("-pk").values_list(*COLUMNS)[: most + 1]]


def _list_lines_above(chosen: QuerySet[LedgerEntry], lines: int, after: int) -> TickRunPage | None:
    """Return the lines that end above an id, as a reader who paged down saw them.

    None where the newest page has them all.
    """
    lines_query = chosen.filter(pk__gt=after).order_by("pk").values_list(*COLUMNS)
    read = [Tick(*row) for row in lines_query[: MAX_READ + 1]]
    ticks, left = read[:MAX_READ][::-1], len(read) > MAX_READ
    # A change is detected by comparison with the previous tick, which may be on the older page.
    earlier = _read_ticks(chosen.filter(pk__lte=after), MAX_OF_A_LOOP)
    rows = _fold_lines(ticks, len(ticks), earlier).rows
    if len(rows) <= lines and not left:
        return None
    first = rows[-lines:][0]
    newest = first.newest if isinstance(first, TickRun) else first
    newer = newest if left or newest != ticks[0].pk else None
    return TickRunPage(load_entries(rows[-lines:]), ticks[-1].pk if earlier else None, newer)


def list_latest_lines(loop: Loop, lines: int) -> list[LedgerEntry | TickRun]:
    """Return the newest lines of one loop."""
    read = loop.entries.order_by("-at", "-pk").values_list(*COLUMNS)[:MAX_OF_A_LOOP]
    return load_entries(_fold_lines([Tick(*row) for row in read], lines).rows)


def compute_lateness(interval_seconds: float, rest_seconds: float, at: datetime, before: datetime | None) -> float:
    """Return how many seconds late a tick came after the previous one; 0 if on time or unknown."""
    since = None if before is None else (at - before).total_seconds()
    return compute_late_seconds(since, interval_seconds, rest_seconds)


def add_lateness(entries: QuerySet[LedgerEntry]) -> QuerySet[LedgerEntry]:
    """Annotate `before_at`, the time of the previous tick of the same loop, for `lateness_of`."""
    earlier = LedgerEntry.objects.filter(loop=OuterRef("loop"), at__lt=OuterRef("at")).order_by("-at")
    return entries.annotate(before_at=Subquery(earlier.values("at")[:1]))


def compute_entry_lateness(entry: LedgerEntry) -> float:
    """Return `late_by` of an entry that was read with `add_lateness`; 0 for others."""
    loop, begin = entry.loop, entry.folded_since or entry.at
    return compute_lateness(loop.interval_seconds, get_rest_seconds(loop.law), begin, getattr(entry, "before_at", None))


def _fold_lines(ticks: Sequence[Tick], lines: int, earlier: Sequence[Tick] = ()) -> _Lines:
    """Return the first lines of the ticks, newest first. earlier: ticks that precede these."""
    rows: list[int | TickRun] = []
    last, is_certain, loops = None, True, _load_loops()
    befores = _find_previous_ticks([*ticks, *earlier])[: len(ticks)]
    for tick, before in zip(ticks, befores, strict=True):
        news = _is_news(tick, before, loops)
        run = rows[-1] if rows and isinstance(rows[-1], TickRun) and not news else None
        if run is None and len(rows) == lines:
            return _Lines(rows, last, is_certain)
        is_certain = is_certain and before is not None
        if news:
            rows.append(tick.pk)
        else:
            if run is None:
                run = TickRun(tick.pk, tick.pk, tick.at, tick.at)
                rows.append(run)
            begin = tick.folded_since or tick.at
            run.add(tick, compute_lateness(*loops.intervals[tick.loop], begin, before and before.at))
        last = tick.pk
    return _Lines(rows, last, False)


def _is_news(tick: Tick, before: Tick | None, loops: _Loops) -> bool:
    """Return whether a tick is a line of its own. before: the previous tick of the same loop, None if unknown."""
    if tick.verdict == LedgerEntry.Verdict.HARMFUL or (tick.acted and tick.loop not in loops.routine):
        return True
    if before is None:
        return False
    limited_anew = tick.limited_by is not None and tick.limited_by != before.limited_by
    return tick.mode != before.mode or limited_anew


def _find_previous_ticks(ticks: Sequence[Tick]) -> list[Tick | None]:
    """Return the previous tick of the same loop for each tick."""
    ticks_found: list[Tick | None] = []
    latest: dict[int, Tick] = {}
    for tick in reversed(ticks):
        ticks_found.append(latest.get(tick.loop))
        latest[tick.loop] = tick
    return ticks_found[::-1]


def _load_loops() -> _Loops:
    rows = list(Loop.objects.values_list("pk", "law", "interval_seconds"))
    routine = frozenset(pk for pk, law, _ in rows if not find_display(law).is_news)
    return _Loops({pk: (interval, get_rest_seconds(law)) for pk, law, interval in rows}, routine)


def load_entries(rows: Sequence[int | TickRun]) -> list[LedgerEntry | TickRun]:
    """Return the rows with each id replaced by its entry, without entries that were deleted meanwhile."""
    ids = [row for row in rows if isinstance(row, int)]
    by_id = add_lateness(LedgerEntry.objects.select_related("loop").defer("folded")).in_bulk(ids)
    entries = [row if isinstance(row, TickRun) else by_id.get(row) for row in rows]
    return [row for row in entries if row is not None]
