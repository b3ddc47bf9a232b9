"""Words in the ledger: an index over what its entries say, beside what the other filters ask for.

SQLite: an FTS5 table over the entries' words and their few-valued columns, kept by triggers. A filter with
words is one query of it, so that a common word and a rare verdict together cost no walk over all entries.
PostgreSQL: an index of the words alone, which its planner joins with the others. A word is found by its
beginning when it is the last; case does not count, nor do accents on SQLite. To PostgreSQL a number, an
address and a path are one word each (3.3, 10.0.0.1, events/s), and it finds them by their beginning.
"""

import re
from typing import Any

from django.db import connection
from django.db.models import BigIntegerField, BooleanField, QuerySet
from django.db.models.expressions import RawSQL

TABLE, INDEX, SOURCE = "workers_ledgerentry", "workers_ledgersearch", "workers_ledgersource"
COLUMNS = "loop_id, verdict, mode, acted, limited, limited_by, reason, error"
WORD = re.compile(r"\w+")


def _values(row: str) -> str:
    """The indexed values of a row of the table, `new` or `old` in a trigger."""
    plain = {"limited": f"({row}.limited_by IS NOT NULL)"}
    return ", ".join(plain.get(name, f"{row}.{name}") for name in COLUMNS.split(", "))


def _add(row: str) -> str:
    return f"INSERT INTO {INDEX} (rowid, {COLUMNS}) VALUES ({row}.id, {_values(row)});"


def _remove(row: str) -> str:
    return f"INSERT INTO {INDEX} ({INDEX}, rowid, {COLUMNS}) VALUES ('delete', {row}.id, {_values(row)});"


_SQLITE = (
    f"CREATE VIEW {SOURCE} AS SELECT entry.id, {_values('entry')} FROM {TABLE} entry",
    f"CREATE VIRTUAL TABLE {INDEX} USING fts5({COLUMNS}, content='{SOURCE}', content_rowid='id')",
    f"INSERT INTO {INDEX} (rowid, {COLUMNS}) SELECT entry.id, {_values('entry')} FROM {TABLE} entry",
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
# Each word by itself; or as PostgreSQL takes the text apart, which is how it has made the index. A text of
# which it makes nothing adds nothing.
_PHRASE = "coalesce(nullif(phraseto_tsquery('simple', %s)::text, '') || ':*', '')::tsquery"
_MATCH = f"{_WORDS} @@ (to_tsquery('simple', %s) || {_PHRASE})"


def build(vendor: str) -> tuple[str, ...]:
    """The statements that make the index and keep it. KeyError for a database they are not written for."""
    return {"sqlite": _SQLITE, "postgresql": (f"CREATE INDEX {INDEX} ON {TABLE} USING gin ({_WORDS})",)}[
        vendor
    ]


def remove(vendor: str) -> tuple[str, ...]:
    """The statements that take it back."""
    return {"sqlite": _SQLITE_BACK, "postgresql": (f"DROP INDEX {INDEX}",)}[vendor]


def find_by_words(
    entries: QuerySet[Any], text: str, facets: dict[str, str], first: int | None, last: int | None
) -> QuerySet[Any]:
    """The entries whose reason or error has the words of `text` beside each other, for
    `workers.coordination.keyset`.

    `facets` ({column: value}, several values with | between) are conditions that the entries fulfil anyway,
    as no id is below `first` or above `last`: the index leaves out what they leave out. A text without any
    word finds nothing.
    """
    words = WORD.findall(text)
    if not words:
        return entries.none()
    if connection.vendor == "sqlite":
        return _scan_index(entries, _match(words, facets), first, last)
    phrase = " <-> ".join([*words[:-1], f"{words[-1]}:*"])
    return entries.filter(RawSQL(_MATCH, [phrase, text], output_field=BooleanField()))


def _scan_index(entries: QuerySet[Any], match: str, first: int | None, last: int | None) -> QuerySet[Any]:
    """Read along the index's ids, which is how it knows where to go on, and need not sort."""
    joined: QuerySet[Any] = entries.extra(
        tables=[INDEX], where=[f"{INDEX}.rowid = {TABLE}.id", f"{INDEX} MATCH %s"], params=[match]
    ).annotate(place=RawSQL(f"{INDEX}.rowid", [], output_field=BigIntegerField()))
    if first is not None:
        joined = joined.filter(place__gte=first)
    return joined if last is None else joined.filter(place__lte=last)


def _match(words: list[str], facets: dict[str, str]) -> str:
    """The query of FTS5. Words hold no quotes: `WORD` leaves none."""
    parts = [f'{{reason error}} : ("{" ".join(words)}" *)']
    parts += [f"{column} : ({_phrases(value)})" for column, value in facets.items()]
    return " AND ".join(parts)


def _phrases(value: str) -> str:
    """One of several values, separated by |."""
    return " OR ".join(f'"{" ".join(WORD.findall(part))}"' for part in value.split("|"))
