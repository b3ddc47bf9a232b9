"""Keyset pages of append-only data, newest first, by the id of the adjacent row.

The thousandth page costs as much as the first, and new rows shift no page.
"""

from collections.abc import Sized
from dataclasses import dataclass
from typing import Any, Protocol

from django.db.models import QuerySet

MAX_COUNTED = 10_000


class ListPage(Protocol):
    """A page of a list."""

    @property
    def rows(self) -> Sized:
        """Return its rows."""

    @property
    def alone(self) -> bool:
        """Return whether the page has all rows."""


@dataclass(frozen=True)
class KeysetPage:
    """Rows, newest first.

    older, newer: the values of `before` and `after` for the adjacent pages, None at the ends. `alone`: the page has all
    rows.
    """

    rows: list[Any]
    older: int | None
    newer: int | None
    alone: bool = False


def load_page(chosen: QuerySet[Any], rows: int, before: int | None = None, after: int | None = None) -> KeysetPage:
    """Return the rows older than `before`, those just newer than `after`, or the newest.

    Ids are read first, which an index may have without any row, then the rows with these ids.
    """
    # It is the id, or the equivalent in another index, annotated as `place`.
    place = "place" if "place" in chosen.query.annotations else "pk"
    if after is not None:
        row_ids = _list_ids(chosen.filter(**{f"{place}__gt": after}).order_by(place), rows + 1)
        if len(row_ids) <= rows:  # the first page is filled completely, as if it had been requested
            return load_page(chosen, rows)
        kept = row_ids[:rows][::-1]
        return KeysetPage(_load_rows(chosen, kept), kept[-1], kept[0])
    older = chosen if before is None else chosen.filter(**{f"{place}__lt": before})
    row_ids = _list_ids(older.order_by(f"-{place}"), rows + 1)
    kept = row_ids[:rows]
    return KeysetPage(
        _load_rows(chosen, kept),
        kept[-1] if len(row_ids) > rows else None,
        kept[0] if before is not None and kept else None,
        alone=before is None and len(row_ids) <= rows,
    )


def _list_ids(ordered: QuerySet[Any], most: int) -> list[int]:
    return list(ordered.values_list("pk", flat=True)[:most])


def _load_rows(chosen: QuerySet[Any], ids: list[int]) -> list[Any]:
    rows = chosen.model._default_manager.all()
    rows.query.select_related = chosen.query.select_related
    by_id = rows.in_bulk(ids)
    # A row that was deleted in the meantime is missing.
    return [by_id[entry_id] for entry_id in ids if entry_id in by_id]


def count_listed(chosen: QuerySet[Any], listed: ListPage) -> int:
    """Count the rows up to one more than MAX_COUNTED; larger numbers make no difference to a reader."""
    if listed.alone:
        return len(listed.rows)
    return len(_list_ids(chosen.order_by(), MAX_COUNTED + 1))
