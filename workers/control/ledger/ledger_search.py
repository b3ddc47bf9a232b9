"""Full-text search of the ledger: an index over the words of its entries, combined with the other filters.

SQLite: an FTS5 table over the entries' words and low-cardinality columns, maintained by triggers. A filter with words
is one query of it, so a common word combined with a rare verdict does not scan all entries.
PostgreSQL: an index of the words alone, which the planner joins with the others. The last word of a query matches as a
prefix. Case is ignored, and so are accents on SQLite. PostgreSQL treats a number, an address, and a path as one word
each (3.3, 10.0.0.1, events/s) and matches them by prefix.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import BigIntegerField, BooleanField, Max, Min, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce

from common import parsing
from common.errors import BadInput
from workers.models import LedgerEntry, Loop

TABLE, INDEX, SOURCE = "workers_ledgerentry", "workers_ledgersearch", "workers_ledgersource"
COLUMNS = "loop_id, verdict, mode, acted, limited, limited_by, reason, error"
WORD = re.compile(r"\w+")
_DROP_TRIGGERS = tuple(f"DROP TRIGGER {INDEX}_{verb}" for verb in ("insert", "delete", "update"))
_SQLITE_BACK = (*_DROP_TRIGGERS, f"DROP TABLE {INDEX}", f"DROP VIEW {SOURCE}")
_WORDS = "to_tsvector('simple', reason || ' ' || error)"
# Each word separately, or the text as PostgreSQL parses it, which is how it built the index. A text without
# any parsed word adds nothing.
_PHRASE = "coalesce(nullif(phraseto_tsquery('simple', %s)::text, '') || ':*', '')::tsquery"
_MATCH = f"{_WORDS} @@ (to_tsquery('simple', %s) || {_PHRASE})"
MAXIMUM_TEXT = 200
ANY_LIMIT = "any"
INDEXED = ("loop_id", "verdict", "at")
# An action whose effect is not known yet is indexed as effective. Most actions get that verdict, and are then not
# indexed again, which took a tenth of a tick of many loops.
CHECKING, EFFECTIVE = LedgerEntry.Verdict.CHECKING.value, LedgerEntry.Verdict.EFFECTIVE.value


def _format_indexed_values(row: str) -> str:
    """Return the indexed values of a row of the table, which is `new` or `old` in a trigger."""
    verdict = f"CASE {row}.verdict WHEN '{CHECKING}' THEN '{EFFECTIVE}' ELSE {row}.verdict END"
    computed = {"limited": f"({row}.limited_by IS NOT NULL)", "verdict": verdict}
    return ", ".join(computed.get(name, f"{row}.{name}") for name in COLUMNS.split(", "))


def _add(row: str) -> str:
    return f"INSERT INTO {INDEX} (rowid, {COLUMNS}) VALUES ({row}.id, {_format_indexed_values(row)});"


def _remove(row: str) -> str:
    values = _format_indexed_values(row)
    return f"INSERT INTO {INDEX} ({INDEX}, rowid, {COLUMNS}) VALUES ('delete', {row}.id, {values});"


_VIEW = f"CREATE VIEW {SOURCE} (id, {COLUMNS}) AS SELECT entry.id, {_format_indexed_values('entry')} FROM {TABLE} entry"
_TRIGGERS = (
    f"CREATE TRIGGER {INDEX}_insert AFTER INSERT ON {TABLE} BEGIN {_add('new')} END",
    f"CREATE TRIGGER {INDEX}_delete AFTER DELETE ON {TABLE} BEGIN {_remove('old')} END",
    f"CREATE TRIGGER {INDEX}_update AFTER UPDATE OF verdict, limited_by, reason, error ON {TABLE} "
    f"WHEN ({_format_indexed_values('old')}) IS NOT ({_format_indexed_values('new')}) "
    f"BEGIN {_remove('old')} {_add('new')} END",
)
_SQLITE = (
    _VIEW,
    f"CREATE VIRTUAL TABLE {INDEX} USING fts5({COLUMNS}, content='{SOURCE}', content_rowid='id')",
    f"INSERT INTO {INDEX} (rowid, {COLUMNS}) SELECT entry.id, {_format_indexed_values('entry')} FROM {TABLE} entry",
    *_TRIGGERS,
)
# For an index of an older version, in which actions without a verdict have the word `checking`.
_OLDER_VALUES = _format_indexed_values("entry").replace(f"THEN '{EFFECTIVE}'", f"THEN '{CHECKING}'")
_SQLITE_RENEWAL = (
    f"INSERT INTO {INDEX} ({INDEX}, rowid, {COLUMNS}) "
    f"SELECT 'delete', entry.id, {_OLDER_VALUES} FROM {TABLE} entry WHERE verdict = '{CHECKING}'",
    f"INSERT INTO {INDEX} (rowid, {COLUMNS}) "
    f"SELECT entry.id, {_format_indexed_values('entry')} FROM {TABLE} entry WHERE verdict = '{CHECKING}'",
    *_DROP_TRIGGERS,
    f"DROP VIEW {SOURCE}",
    _VIEW,
    *_TRIGGERS,
)


def build(vendor: str) -> tuple[str, ...]:
    """Return the statements that create the index. Raises KeyError for an unsupported database."""
    return {"sqlite": _SQLITE, "postgresql": (f"CREATE INDEX {INDEX} ON {TABLE} USING gin ({_WORDS})",)}[vendor]


def remove(vendor: str) -> tuple[str, ...]:
    """Return the statements that remove the index."""
    return {"sqlite": _SQLITE_BACK, "postgresql": (f"DROP INDEX {INDEX}",)}[vendor]


def renew(cursor: Any) -> None:
    """Have an index that an older version built on SQLite store values as this version does."""
    cursor.execute("SELECT sql FROM sqlite_master WHERE name = %s", [SOURCE])
    if cursor.fetchone() == (_VIEW,):
        return
    for statement in _SQLITE_RENEWAL:
        cursor.execute(statement)


def find_by_words(
    entries: QuerySet[Any], text: str, facets: dict[str, str], first: int | None, last: int | None
) -> QuerySet[Any]:
    """Filter entries whose reason or error has the words of `text` adjacent to each other.

    The result is for `workers.coordination.keyset`. `facets` ({column: value}, several values separated by |) are
    conditions that the entries meet anyway, just as their ids are between `first` and `last`: they let the index skip
    entries. A text without any word finds nothing.
    """
    words = WORD.findall(text)
    if not words:
        return entries.none()
    if connection.vendor == "sqlite":
        joined: QuerySet[Any] = entries.extra(
            tables=[INDEX], where=[f"{INDEX}.rowid = {TABLE}.id", f"{INDEX} MATCH %s"], params=[_match(words, facets)]
        ).annotate(place=RawSQL(f"{INDEX}.rowid", [], output_field=BigIntegerField()))
        if first is not None:
            joined = joined.filter(place__gte=first)
        return joined if last is None else joined.filter(place__lte=last)
    phrase = " <-> ".join([*words[:-1], f"{words[-1]}:*"])
    return entries.filter(RawSQL(_MATCH, [phrase, text], output_field=BooleanField()))


def _match(words: list[str], facets: dict[str, str]) -> str:
    """Return the FTS5 query. Words contain no quotes: `WORD` excludes them."""
    parts = [f'{{reason error}} : ("{" ".join(words)}" *)']
    for column, value in facets.items():
        # one of several values, separated by |
        phrases = " OR ".join(f'"{" ".join(WORD.findall(part))}"' for part in value.split("|"))
        parts.append(f"{column} : ({phrases})")
    return " AND ".join(parts)


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
        verdict = EFFECTIVE if self.verdict == CHECKING else self.verdict
        facets = {"verdict": verdict, "mode": self.mode, "limited_by": self._limit}
        facets |= {"acted": "" if self.acted is None else str(int(self.acted))}
        facets |= {"limited": "1" if self.limited_by == ANY_LIMIT else ""}
        facets |= {"loop_id": "|".join(map(str, loops or ()))}
        known = {name: value for name, value in facets.items() if value}
        # They bound the rows to read.
        first = last = None
        if self.since:
            first = LedgerEntry.objects.filter(at__gte=self.since).aggregate(id=Min("pk"))["id"] or 2**62
        if self.verdict == CHECKING:
            oldest = LedgerEntry.objects.filter(verdict=CHECKING).aggregate(id=Min("pk"))["id"] or 2**62
            first = max(first or 0, oldest)
        if self.until:
            last = LedgerEntry.objects.filter(at__lt=self.until).aggregate(id=Max("pk"))["id"] or 0
        return find_by_words(entries, self.text, known, first, last)

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


def _scan_by_id(entries: QuerySet[LedgerEntry], lookup: str, value: object) -> QuerySet[LedgerEntry]:
    """Filter by a column's value without the column's own index."""
    name, _, how = lookup.partition("__")
    if name not in INDEXED:
        return entries.filter(**{lookup: value})
    plain = f"plain_{name}"
    return entries.alias(**{plain: Coalesce(name, name)}).filter(**{f"{plain}__{how}" if how else plain: value})


def _check_choice(field: str, value: str, known: Sequence[Any]) -> None:
    if value and value not in known:
        raise BadInput(field, f"must be one of {', '.join(known)}, not {value[:40]!r}.")
