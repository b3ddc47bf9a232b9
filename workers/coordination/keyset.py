"""Pages of what only grows, newest first, by the id of the row beside them.

The thousandth page costs what the first does, and rows that come meanwhile move nobody's page.
"""

from collections.abc import Sized
from dataclasses import dataclass
from typing import Any, Protocol

from django.db.models import QuerySet

MOST_COUNTED = 10_000


class Listed(Protocol):
    """A page of a list."""

    @property
    def rows(self) -> Sized:
        """Its rows."""

    @property
    def alone(self) -> bool:
        """Whether they are all there are."""


@dataclass(frozen=True)
class KeysetPage:
    """Rows, newest first; `older` and `newer` are what to give as `before` and `after` for the pages beside
    it, None at the ends. `alone`: these are all there are.
    """

    rows: list[Any]
    older: int | None
    newer: int | None
    alone: bool = False


def page(chosen: QuerySet[Any], rows: int, before: int | None = None, after: int | None = None) -> KeysetPage:
    """The rows older than `before`, or those just newer than `after`, or the newest.

    First their ids alone, which an index may know without any row, then the rows of these ids.
    """
    place = _place(chosen)
    if after is not None:
        row_ids = _ids(chosen.filter(**{f"{place}__gt": after}).order_by(place), rows + 1)
        if len(row_ids) <= rows:  # the first page is filled to its end, as if it had been asked for
            return page(chosen, rows)
        kept = row_ids[:rows][::-1]
        return KeysetPage(_rows(chosen, kept), kept[-1], kept[0])
    older = chosen if before is None else chosen.filter(**{f"{place}__lt": before})
    row_ids = _ids(older.order_by(f"-{place}"), rows + 1)
    kept = row_ids[:rows]
    return KeysetPage(
        _rows(chosen, kept),
        kept[-1] if len(row_ids) > rows else None,
        kept[0] if before is not None and kept else None,
        alone=before is None and len(row_ids) <= rows,
    )


def _place(chosen: QuerySet[Any]) -> str:
    """What says where a row stands: its id, or the same as another index has it, annotated as `place`."""
    return "place" if "place" in chosen.query.annotations else "pk"


def _ids(ordered: QuerySet[Any], most: int) -> list[int]:
    return list(ordered.values_list("pk", flat=True)[:most])


def _rows(chosen: QuerySet[Any], ids: list[int]) -> list[Any]:
    rows = chosen.model._default_manager.all()
    rows.query.select_related = chosen.query.select_related
    by_id = rows.in_bulk(ids)
    # One that was deleted meanwhile is not there any more.
    return [by_id[entry_id] for entry_id in ids if entry_id in by_id]


def count_listed(chosen: QuerySet[Any], listed: Listed) -> int:
    """How many there are, up to one more than MOST_COUNTED: nobody reads the difference beyond that."""
    if listed.alone:
        return len(listed.rows)
    return len(_ids(chosen.order_by(), MOST_COUNTED + 1))
