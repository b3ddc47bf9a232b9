"""Folding of ledger entries that did nothing.

The last entry of a run stores all the others packed in it. An idle loop writes nearly the same entry thousands of times
a day. A run consists of the consecutive entries that one loop wrote in one `SLOT` without an action, an error, or a
delay, in one mode and under one limit, if any. When the mode or the limit changes, the first entry stays separate. Once
a run is completely older than `AFTER`, it becomes one entry with `folded_ticks` others, the first of them at
`folded_since`. Readers of the newest hours (alert windows, pages, a tick that reads the ledger) therefore find separate
entries.

Nothing is lost: `ticks` and `entry` return each entry with its id, time, state, and observation, for display, counting,
and replay. Consecutive entries differ little, so a packed entry takes a tenth of its former size.
"""

import itertools
import json
import lzma
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import BooleanField, ExpressionWrapper, F, Q, QuerySet, Sum

from workers.models import LedgerEntry, Loop

SLOT, AFTER = timedelta(minutes=15), timedelta(hours=3)
FEWEST = 4  # ticks of a run; folding fewer saves nothing
CHUNK = 500
# Fields that differ from tick to tick; SAME is equal within a run, and all others are empty.
FIELDS = (
    "id",
    "at",
    "fence",
    "raw",
    "guarded",
    "reason",
    "code",
    "parameters",
    "state_before",
    "observation",
    "terms",
    "expected",
)
SAME = ("mode", "limited_by")
OF_A_FOLD = ("folded", "folded_ticks", "folded_since")
# A megabyte fits a run many times over; a compressor with this window needs some ten megabytes.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 20}]
Guarded = Callable[[], AbstractContextManager[None]]


class _Tick(NamedTuple):
    """One tick of the ledger. is_plain: it did nothing and had no effect."""

    pk: int
    mode: str
    limited_by: str | None
    is_plain: bool


def fold(loop: Loop, since: datetime, before: datetime, guarded: Guarded) -> Iterator[int]:
    """Fold a loop's runs of whole slots in a time range; after each, yield how many entries were folded.

    A run is written in one transaction, inside `guarded`, if all of its entries still exist.
    """
    entries = loop.entries.filter(folded_ticks=0, plan=None, at__lt=_compute_slot_start(before))
    at = _compute_slot_start(since)
    before_it = loop.entries.filter(at__lt=at).order_by("-at").values_list(*SAME).first()
    while (first := entries.filter(at__gte=at).order_by("at").only("at").first()) is not None:
        begin = _compute_slot_start(first.at)
        at = begin + SLOT
        ticks_of_slot = _read(entries.filter(at__gte=begin, at__lt=at))
        for run in _runs(ticks_of_slot, before_it):
            for part in _on_time(run):
                yield _write(part, guarded)
        if ticks_of_slot:  # retention may have deleted entries in the meantime
            before_it = (ticks_of_slot[-1].mode, ticks_of_slot[-1].limited_by)


def iterate_ticks(
    entries: QuerySet[LedgerEntry], since: datetime, until: datetime, only: Sequence[str] = ()
) -> Iterator[LedgerEntry]:
    """Yield each tick of these entries in since ≤ at < until, in order for each loop.

    Folded ticks are unfolded. entries: not filtered by time; only: the fields that are read.
    """
    in_time = Q(at__gte=since, at__lt=until)
    beyond = Q(at__gte=until, at__lt=until + SLOT, folded_ticks__gt=0)
    ticks_query = entries.filter(in_time | beyond).order_by("pk")
    if only:
        ticks_query = ticks_query.only(*dict.fromkeys(("loop", "verdict", *SAME, *only, *OF_A_FOLD)))
    for tick_row in ticks_query.iterator(CHUNK):
        yield from (tick for tick in unfold(tick_row) if since <= tick.at < until)


def count(entries: QuerySet[LedgerEntry], since: datetime, until: datetime) -> int:
    """Count the ticks that `ticks` would yield; only entries at both ends of the range are unfolded."""
    inner = entries.filter(at__gte=since + SLOT, at__lt=until)
    of_inner = inner.aggregate(ticks=Sum(F("folded_ticks") + 1))["ticks"] or 0
    at_ends = Q(at__gte=since, at__lt=min(until, since + SLOT)) | Q(at__gte=until, at__lt=until + SLOT)
    outer = entries.filter(at_ends).only("loop", "verdict", "at", *SAME, *OF_A_FOLD)
    return of_inner + sum(since <= tick.at < until for folded in outer for tick in unfold(folded))


def unfold(entry: LedgerEntry) -> Iterator[LedgerEntry]:
    """Return the ticks that an entry represents, with the entry itself as the last."""
    if entry.folded:
        yield from (_tick(entry, row) for row in json.loads(lzma.decompress(bytes(entry.folded))))
    yield entry


def merge_idle(newest_first: Iterable[LedgerEntry]) -> Iterator[LedgerEntry]:
    """Yield entries with each loop's consecutive ticks without an action as one entry, the last of them.

    Its `folded_ticks` and `folded_since` cover the others. Nothing is stored. A run lasts at most `SLOT`, because the
    entries after its end wait for it.
    """
    waiting: deque[LedgerEntry] = deque()
    open_runs: dict[int, LedgerEntry] = {}
    for entry in newest_first:
        run = open_runs.get(entry.loop_id)
        if run is not None and _continues(run, entry):
            run.folded_ticks += 1 + entry.folded_ticks
            run.folded_since = entry.folded_since or entry.at
            continue
        open_runs.pop(entry.loop_id, None)
        if _is_plain(entry):
            open_runs[entry.loop_id] = entry
        waiting.append(entry)
        open_runs = {loop: first for loop, first in open_runs.items() if first.at - entry.at < SLOT}
        while waiting and open_runs.get(waiting[0].loop_id) is not waiting[0]:
            yield waiting.popleft()
    yield from waiting


def _is_plain(entry: LedgerEntry) -> bool:
    """Return whether a tick did nothing, without an error or a delay."""
    late = "late_seconds" in (entry.observation or {})
    return entry.verdict == LedgerEntry.Verdict.NO_ACTION and not entry.acted and not entry.error and not late


def _continues(run: LedgerEntry, entry: LedgerEntry) -> bool:
    """Return whether a tick belongs to a run of later ticks."""
    same = (run.mode, run.limited_by) == (entry.mode, entry.limited_by)
    return same and _is_plain(entry) and run.at - entry.at < SLOT


def find_entry(number: int) -> LedgerEntry | None:
    """Return the tick with this id, even where it is folded into another."""
    entries = LedgerEntry.objects.select_related("loop")
    if (stored := entries.filter(pk=number).first()) is not None:
        return stored
    after = entries.filter(pk__gt=number).order_by("pk").values_list("at", flat=True).first()
    if after is None:
        return None
    around = entries.filter(pk__gt=number, folded_ticks__gt=0, at__range=(after - SLOT, after + SLOT))
    several = (unfold(stored_entry) for stored_entry in around.order_by("pk").iterator(CHUNK))
    return next((tick for tick in itertools.chain.from_iterable(several) if tick.pk == number), None)


def _compute_slot_start(at: datetime) -> datetime:
    """Return the start of the slot that contains a time."""
    return at - timedelta(seconds=at.timestamp() % SLOT.total_seconds())


def _read(entries: QuerySet[LedgerEntry]) -> list[_Tick]:
    """Read entries without wide columns: most ticks of a busy loop act and belong to no run."""
    does_nothing = Q(verdict=LedgerEntry.Verdict.NO_ACTION, acted=False, error="", outcome__isnull=True)
    is_plain = ExpressionWrapper(does_nothing, output_field=BooleanField())
    rows = entries.annotate(is_plain=is_plain).order_by("pk").values_list("pk", *SAME, "is_plain")
    return [_Tick(pk, mode, limited_by, bool(plain)) for pk, mode, limited_by, plain in rows]


def _runs(several: Sequence[_Tick], before: tuple[str, str | None] | None) -> Iterator[list[int]]:
    """Yield the ids of adjacent ticks that did nothing, in one mode and under one limit.

    The first tick after a change of mode or limit is left out. before: mode and limit of the tick before these.
    """
    for (mode, limited_by, is_plain), those in itertools.groupby(several, lambda tick: tick[1:]):
        run = [tick.pk for tick in those]
        is_news = before is not None and before != (mode, limited_by)
        before = (mode, limited_by)
        if is_plain and len(run) - is_news >= FEWEST:
            yield run[is_news:]


def _on_time(run: Sequence[int]) -> Iterator[list[LedgerEntry]]:
    """Yield the run's entries without late ones, split at each late entry."""
    entries = LedgerEntry.objects.filter(pk__in=run).order_by("pk")
    for is_late, those in itertools.groupby(entries, lambda entry: "late_seconds" in (entry.observation or {})):
        part = list(those)
        if not is_late and len(part) >= FEWEST:
            yield part


def _write(run: Sequence[LedgerEntry], guarded: Guarded) -> int:
    *others, last = run
    rows = [[tick.at.isoformat() if name == "at" else getattr(tick, name) for name in FIELDS] for tick in others]
    text = json.dumps(rows, separators=(",", ":")).encode()
    folded = lzma.compress(text, check=lzma.CHECK_CRC32, filters=FILTERS)
    with guarded():
        present = LedgerEntry.objects.filter(pk__in=[tick.pk for tick in run]).count()
        if present < len(run):
            return 0  # retention deleted it in the meantime
        LedgerEntry.objects.filter(pk__in=[other.pk for other in others]).delete()
        LedgerEntry.objects.filter(pk=last.pk).update(
            folded=folded, folded_ticks=len(others), folded_since=others[0].at
        )
    return len(others)


def _tick(of: LedgerEntry, row: Sequence[Any]) -> LedgerEntry:
    values = dict(zip(FIELDS, row, strict=True))
    values["at"] = datetime.fromisoformat(values["at"])
    same = {name: getattr(of, name) for name in SAME}
    tick = LedgerEntry(loop_id=of.loop_id, verdict=of.verdict, **same, **values)
    if LedgerEntry.loop.is_cached(of):
        tick.loop = of.loop
    tick._state.adding = False
    return tick
