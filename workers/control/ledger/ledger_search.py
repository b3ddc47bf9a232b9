"""Full-text search of the ledger: an index over the words of its entries, combined with the other filters.

SQLite: an FTS5 table over the entries' words and low-cardinality columns, maintained by triggers. A filter with words
is one query of it, so a common word combined with a rare verdict does not scan all entries.
PostgreSQL: an index of the words alone, which the planner joins with the others. The last word of a query matches as a
prefix. Case is ignored, and so are accents on SQLite. PostgreSQL treats a number, an address, and a path as one word
each (3.3, 10.0.0.1, events/s) and matches them by prefix.
"""

import re
from typing import Any

from django.db import connection
from django.db.models import BigIntegerField, BooleanField, QuerySet
from django.db.models.expressions import RawSQL

TABLE, INDEX, SOURCE = "workers_ledgerentry", "workers_ledgersearch", "workers_ledgersource"
COLUMNS = "loop_id, verdict, mode, acted, limited, limited_by, reason, error"
WORD = re.compile(r"\w+")


def _format_indexed_values(row: str) -> str:
    """Return the indexed values of a row of the table, which is `new` or `old` in a trigger."""
    plain = {"limited": f"({row}.limited_by IS NOT NULL)"}
    return ", ".join(plain.get(name, f"{row}.{name}") for name in COLUMNS.split(", "))


def _add(row: str) -> str:
    return f"INSERT INTO {INDEX} (rowid, {COLUMNS}) VALUES ({row}.id, {_format_indexed_values(row)});"


def _remove(row: str) -> str:
    values = _format_indexed_values(row)
    return f"INSERT INTO {INDEX} ({INDEX}, rowid, {COLUMNS}) VALUES ('delete', {row}.id, {values});"


_SQLITE = (
    f"CREATE VIEW {SOURCE} AS SELECT entry.id, {_format_indexed_values('entry')} FROM {TABLE} entry",
    f"CREATE VIRTUAL TABLE {INDEX} USING fts5({COLUMNS}, content='{SOURCE}', content_rowid='id')",
    f"INSERT INTO {INDEX} (rowid, {COLUMNS}) SELECT entry.id, {_format_indexed_values('entry')} FROM {TABLE} entry",
    f"CREATE TRIGGER {INDEX}_insert AFTER INSERT ON {TABLE} BEGIN {_add('new')} END",
    f"CREATE TRIGGER {INDEX}_delete AFTER DELETE ON {TABLE} BEGIN {_remove('old')} END",
    f"CREATE TRIGGER {INDEX}_update AFTER UPDATE OF verdict, limited_by, reason, error ON {TABLE} "
    f"BEGIN {_remove('old')} {_add('new')} END",
)
_SQLITE_BACK = (
    *(f"DROP TRIGGER {INDEX}_{verb}" for verb in ("insert", "delete", "update")),
    f"DROP TABLE {INDEX}",
    f"DROP VIEW {SOURCE}",
)
_WORDS = "to_tsvector('simple', reason || ' ' || error)"
# Each word separately, or the text as PostgreSQL parses it, which is how it built the index. A text without
# any parsed word adds nothing.
_PHRASE = "coalesce(nullif(phraseto_tsquery('simple', %s)::text, '') || ':*', '')::tsquery"
_MATCH = f"{_WORDS} @@ (to_tsquery('simple', %s) || {_PHRASE})"


def build(vendor: str) -> tuple[str, ...]:
    """Return the statements that create the index. Raises KeyError for an unsupported database."""
    return {"sqlite": _SQLITE, "postgresql": (f"CREATE INDEX {INDEX} ON {TABLE} USING gin ({_WORDS})",)}[vendor]


def remove(vendor: str) -> tuple[str, ...]:
    """Return the statements that remove the index."""
    return {"sqlite": _SQLITE_BACK, "postgresql": (f"DROP INDEX {INDEX}",)}[vendor]


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
        return _scan_index(entries, _match(words, facets), first, last)
    phrase = " <-> ".join([*words[:-1], f"{words[-1]}:*"])
    return entries.filter(RawSQL(_MATCH, [phrase, text], output_field=BooleanField()))


def _scan_index(entries: QuerySet[Any], match: str, first: int | None, last: int | None) -> QuerySet[Any]:
    """Scan the index in order of its ids, so that it can continue from an id and need not sort."""
    joined: QuerySet[Any] = entries.extra(
        tables=[INDEX], where=[f"{INDEX}.rowid = {TABLE}.id", f"{INDEX} MATCH %s"], params=[match]
    ).annotate(place=RawSQL(f"{INDEX}.rowid", [], output_field=BigIntegerField()))
    if first is not None:
        joined = joined.filter(place__gte=first)
    return joined if last is None else joined.filter(place__lte=last)


def _match(words: list[str], facets: dict[str, str]) -> str:
    """Return the FTS5 query. Words contain no quotes: `WORD` excludes them."""
    parts = [f'{{reason error}} : ("{" ".join(words)}" *)']
    parts += [f"{column} : ({_phrases(value)})" for column, value in facets.items()]
    return " AND ".join(parts)


def _phrases(value: str) -> str:
    """Return a query for one of several values, separated by |."""
    return " OR ".join(f'"{" ".join(WORD.findall(part))}"' for part in value.split("|"))
