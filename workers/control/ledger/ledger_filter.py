"""Filter of ledger entries, shared by page, API, export, and command line."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Max, Min, QuerySet
from django.db.models.functions import Coalesce

from common import parsing
from common.errors import BadInput
from workers.control.ledger import ledger_search
from workers.models import LedgerEntry, Loop

MAXIMUM_TEXT = 200
ANY_LIMIT = "any"
INDEXED = ("loop_id", "verdict", "at")


@dataclass(frozen=True)
class LedgerFilter:
    """Filter of ledger entries: each field narrows the selection, an empty field selects all.

    loop: id or name. law, queue, node: of the loop's target. acted: whether an action was decided.
    limited_by: what limited it, or `any`. text: adjacent words of the reason or the error, the last one by its prefix.
    since ≤ at < until.
    """

    loop: str = ""
    law: str = ""
    queue: str = ""
    node: str = ""
    verdict: str = ""
    mode: str = ""
    acted: bool | None = None
    limited_by: str = ""
    text: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def check(self) -> "LedgerFilter":
        """Return the filter itself. Raises `BadInput` naming a field with an invalid value."""
        _check_choice("verdict", self.verdict, LedgerEntry.Verdict.values)
        _check_choice("mode", self.mode, Loop.Mode.values)
        if len(self.text) > MAXIMUM_TEXT:
            raise BadInput("text", f"must have at most {MAXIMUM_TEXT} characters, not {len(self.text)}.")
        if self.since and self.until and self.since >= self.until:
            raise BadInput("to", "must be later than `from`.")
        return self

    def choose(self, entries: QuerySet[LedgerEntry]) -> QuerySet[LedgerEntry]:
        """Filter the entries for `workers.coordination.keyset`.

        All filters but the text use one index (`ledger_filters`), which is read in order of ids. Columns that have an
        index of their own are written so that the database does not choose it, since it would then have to sort.
        """
        loops = self._list_loop_ids()
        exact = {"verdict": self.verdict, "mode": self.mode, "limited_by": self._limit}
        conditions: dict[str, Any] = {name: value for name, value in exact.items() if value}
        if loops is not None:
            conditions["loop_id__in"] = loops
        if self.acted is not None:
            conditions["acted"] = self.acted
        if self.limited_by == ANY_LIMIT:
            conditions["limited_by__isnull"] = False
        if self.since:
            conditions["at__gte"] = self.since
        if self.until:
            conditions["at__lt"] = self.until
        for name, value in conditions.items():
            entries = _scan_by_id(entries, name, value)
        return self._filter_by_words(entries, loops) if self.text else entries

    @property
    def _limit(self) -> str:
        return "" if self.limited_by == ANY_LIMIT else self.limited_by

    def _filter_by_words(self, entries: QuerySet[LedgerEntry], loops: list[int] | None) -> QuerySet[LedgerEntry]:
        facets = {"verdict": self.verdict, "mode": self.mode, "limited_by": self._limit}
        facets |= {"acted": "" if self.acted is None else str(int(self.acted))}
        facets |= {"limited": "1" if self.limited_by == ANY_LIMIT else ""}
        facets |= {"loop_id": "|".join(map(str, loops or ()))}
        known = {name: value for name, value in facets.items() if value}
        return ledger_search.find_by_words(entries, self.text, known, *self._find_id_range())

    def _find_id_range(self) -> tuple[int | None, int | None]:
        """Return the minimum id from `since` on and the maximum id before `until`.

        They bound the rows to read.
        """
        first = last = None
        if self.since:
            first = LedgerEntry.objects.filter(at__gte=self.since).aggregate(id=Min("pk"))["id"] or 2**62
        if self.until:
            last = LedgerEntry.objects.filter(at__lt=self.until).aggregate(id=Max("pk"))["id"] or 0
        return first, last

    def _list_loop_ids(self) -> list[int] | None:
        """Return the selected loops, None for all. Loops are few, so they are found before entries."""
        if not (self.loop or self.law or self.queue or self.node):
            return None
        loops = Loop.objects.all()
        if self.loop:
            number = parsing.parse_digits(self.loop)
            loops = loops.filter(name=self.loop) if number is None else loops.filter(pk=number)
        targets = {"law": self.law, "target__queue": self.queue, "target__node": self.node}
        loops = loops.filter(**{name: value for name, value in targets.items() if value})
        return list(loops.values_list("pk", flat=True))

    @property
    def is_empty(self) -> bool:
        """Return whether the filter selects every entry."""
        return replace(self) == LedgerFilter()


def _scan_by_id(entries: QuerySet[LedgerEntry], lookup: str, value: Any) -> QuerySet[LedgerEntry]:
    """Filter by a column's value without the column's own index."""
    name, _, how = lookup.partition("__")
    if name not in INDEXED:
        return entries.filter(**{lookup: value})
    plain = f"plain_{name}"
    return entries.alias(**{plain: Coalesce(name, name)}).filter(**{f"{plain}__{how}" if how else plain: value})


def _check_choice(field: str, value: str, known: Sequence[Any]) -> None:
    if value and value not in known:
        raise BadInput(field, f"must be one of {', '.join(known)}, not {value[:40]!r}.")
