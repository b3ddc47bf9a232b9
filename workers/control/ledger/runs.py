"""The ledger as people read it: what changed line by line, and between it how often nothing did.

Most ticks do nothing, and some laws set their actuator at every tick. A line is a decision that is news:

- it acted, and its law does not act at every tick (`Display.is_news`);
- it was judged harmful;
- its mode is another than at the tick before of the same loop, or something limits it that did not then.

All others between two lines are one run: counted, with the time of its first and its last. What is read for
it is in one index (`ledger_filters`), at most `MOST_READ` entries a page, so a page costs the same on a busy
plant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import OuterRef, Q, QuerySet, Subquery

from workers.control.kinds.registry import display_of, rest_seconds
from workers.control.parts import quality
from workers.models import LedgerEntry, Loop

MOST_READ, MOST_OF_A_LOOP = 10_000, 500
MOST_SEARCHED = 200_000  # entries among which acts are sought
COLUMNS = ("pk", "loop_id", "verdict", "mode", "limited_by", "acted", "at", "folded_ticks", "folded_since")


class Tick(NamedTuple):
    """What the index has of an entry; folded_ticks others are folded into it, the first at folded_since."""

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
    """Ticks side by side that are no news. routine: those that set what their law sets at every tick; late:
    how many came late, and late_seconds by how much at most.
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
        """Its ticks."""
        return self.no_action + self.routine

    @property
    def is_short(self) -> bool:
        """Whether all of it lies in one minute."""
        return self.since.replace(second=0, microsecond=0) == self.until.replace(second=0, microsecond=0)

    @property
    def end(self) -> datetime:
        """The first whole second after it, for an address that asks for its ticks."""
        return self.until.replace(microsecond=0) + timedelta(seconds=1)

    def add(self, tick: Tick, late_seconds: float) -> None:
        """One more, older than all before."""
        self.oldest, self.since = tick.pk, tick.folded_since or tick.at
        self.no_action += (not tick.acted) * (1 + tick.folded_ticks)
        self.routine += tick.acted
        self.late += late_seconds > 0.0
        self.late_seconds = max(self.late_seconds, late_seconds)
        self.loops.add(tick.loop)


@dataclass(frozen=True)
class TickRunPage:
    """Lines, newest first: entries and runs. older, newer: what to give as `before` and `after`, None at the
    ends.
    """

    rows: list[LedgerEntry | TickRun]
    older: int | None
    newer: int | None
    alone: bool = False  # these are all there are


@dataclass(frozen=True)
class _Loops:
    """Of all loops: how often each ticks (s), how long it may write nothing beyond that, and which act at
    every tick.
    """

    intervals: Mapping[int, tuple[float, float]]
    routine: frozenset[int]


def page(
    chosen: QuerySet[LedgerEntry], lines: int, before: int | None = None, after: int | None = None
) -> TickRunPage:
    """The newest lines; or those older than the id `before`; or those that end above the id `after`."""
    if after is not None and (above := _list_lines_above(chosen, lines, after)) is not None:
        return above
    older = chosen if before is None else chosen.filter(pk__lt=before)
    read = [Tick(*row) for row in older.order_by("-pk").values_list(*COLUMNS)[: MOST_READ + 1]]
    rows, last = _fold_lines(read[:MOST_READ], lines)
    left = bool(read) and last != read[-1].pk
    newest = read[0].pk if read and before is not None else None
    return TickRunPage(entries_of(rows), last if left else None, newest)


def _list_lines_above(chosen: QuerySet[LedgerEntry], lines: int, after: int) -> TickRunPage | None:
    """The lines that end above an id, as who came down saw them; None where the newest page has them all."""
    found = chosen.filter(pk__gt=after).order_by("pk").values_list(*COLUMNS)
    read = [Tick(*row) for row in found[: MOST_READ + 1]]
    ticks, left = read[:MOST_READ][::-1], len(read) > MOST_READ
    # What a tick has changed is seen beside the one before, which may be on the older page.
    below = chosen.filter(pk__lte=after).order_by("-pk").values_list(*COLUMNS)[:MOST_OF_A_LOOP]
    earlier = [Tick(*row) for row in below]
    rows, _ = _fold_lines(ticks, len(ticks), earlier)
    if len(rows) <= lines and not left:
        return None
    first = rows[-lines:][0]
    newest = first.newest if isinstance(first, TickRun) else first
    newer = newest if left or newest != ticks[0].pk else None
    return TickRunPage(entries_of(rows[-lines:]), ticks[-1].pk if earlier else None, newer)


def latest(loop: Loop, lines: int) -> list[LedgerEntry | TickRun]:
    """The newest lines of one loop."""
    read = loop.entries.order_by("-at", "-pk").values_list(*COLUMNS)[:MOST_OF_A_LOOP]
    return entries_of(_fold_lines([Tick(*row) for row in read], lines)[0])


def news(until: datetime, lines: int) -> list[LedgerEntry | TickRun]:
    """The newest acts until an instant, and above them one run of what has ticked since."""
    newest = (
        LedgerEntry.objects.filter(at__lte=until).order_by("-at").values_list("pk", flat=True).first() or 0
    )
    searched = LedgerEntry.objects.filter(pk__lte=newest, pk__gt=newest - MOST_SEARCHED).order_by("-pk")
    is_news = ~Q(loop__in=_loops().routine) | Q(verdict=LedgerEntry.Verdict.HARMFUL)
    acts = list(searched.filter(is_news, acted=True).values_list("pk", flat=True)[:lines])
    above = searched.filter(pk__gt=acts[0]) if acts else searched
    ticks = [Tick(*row) for row in above.values_list(*COLUMNS)[:MOST_OF_A_LOOP]]
    if not ticks:
        return entries_of(acts)
    run = TickRun(ticks[0].pk, ticks[0].pk, ticks[0].at, ticks[0].at)
    for tick in ticks:
        run.add(tick, 0.0)
    return entries_of([run, *acts])


def late_by(interval_seconds: float, rest_seconds: float, at: datetime, before: datetime | None) -> float:
    """By how many seconds a tick came late after the one before; 0: it did not, or nobody knows."""
    since = None if before is None else (at - before).total_seconds()
    return quality.late_seconds(since, interval_seconds, rest_seconds)


def add_lateness(entries: QuerySet[LedgerEntry]) -> QuerySet[LedgerEntry]:
    """With `before_at`, the time of the tick before of the same loop, for `lateness_of`."""
    earlier = LedgerEntry.objects.filter(loop=OuterRef("loop"), at__lt=OuterRef("at")).order_by("-at")
    return entries.annotate(before_at=Subquery(earlier.values("at")[:1]))


def lateness_of(entry: LedgerEntry) -> float:
    """`late_by` of an entry that was read `with_lateness`; 0 for others."""
    loop, begin = entry.loop, entry.folded_since or entry.at
    return late_by(loop.interval_seconds, rest_seconds(loop.law), begin, getattr(entry, "before_at", None))


def _fold_lines(
    ticks: Sequence[Tick], lines: int, earlier: Sequence[Tick] = ()
) -> tuple[list[int | TickRun], int | None]:
    """The first so many lines of ticks, newest first: entries' ids and runs; and the last id in them.
    earlier: ticks that came before these.
    """
    rows: list[int | TickRun] = []
    last, loops = None, _loops()
    befores = _ticks_before([*ticks, *earlier])[: len(ticks)]
    for tick, before in zip(ticks, befores, strict=True):
        news = _is_news(tick, before, loops)
        run = rows[-1] if rows and isinstance(rows[-1], TickRun) and not news else None
        if run is None and len(rows) == lines:
            break
        if news:
            rows.append(tick.pk)
        else:
            if run is None:
                run = TickRun(tick.pk, tick.pk, tick.at, tick.at)
                rows.append(run)
            begin = tick.folded_since or tick.at
            run.add(tick, late_by(*loops.intervals[tick.loop], begin, before and before.at))
        last = tick.pk
    return rows, last


def _is_news(tick: Tick, before: Tick | None, loops: _Loops) -> bool:
    """Whether a tick is a line of its own. before: the tick before of the same loop, None: not known."""
    if tick.verdict == LedgerEntry.Verdict.HARMFUL or (tick.acted and tick.loop not in loops.routine):
        return True
    if before is None:
        return False
    limited_anew = tick.limited_by is not None and tick.limited_by != before.limited_by
    return tick.mode != before.mode or limited_anew


def _ticks_before(ticks: Sequence[Tick]) -> list[Tick | None]:
    """Of each tick, the one before of the same loop."""
    found: list[Tick | None] = []
    latest: dict[int, Tick] = {}
    for tick in reversed(ticks):
        found.append(latest.get(tick.loop))
        latest[tick.loop] = tick
    return found[::-1]


def _loops() -> _Loops:
    rows = list(Loop.objects.values_list("pk", "law", "interval_seconds"))
    routine = frozenset(pk for pk, law, _ in rows if not display_of(law).is_news)
    return _Loops({pk: (interval, rest_seconds(law)) for pk, law, interval in rows}, routine)


def entries_of(rows: Sequence[int | TickRun]) -> list[LedgerEntry | TickRun]:
    """The same, each id as its entry; one that was deleted meanwhile is left out."""
    ids = [row for row in rows if isinstance(row, int)]
    by_id = add_lateness(LedgerEntry.objects.select_related("loop").defer("folded")).in_bulk(ids)
    entries = [row if isinstance(row, TickRun) else by_id.get(row) for row in rows]
    return [row for row in entries if row is not None]
