"""Pages of what only grows, newest first, by the id of the row beside them.

The thousandth page costs what the first does, and rows that come meanwhile move nobody's page.
"""

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

MOST_COUNTED = 10_000


@dataclass(frozen=True)
class KeysetPage:
    """Rows, newest first; `older` and `newer` are what to give as `before` and `after` for the pages beside
    it, None at the ends.
    """

    rows: list[Any]
    older: int | None
    newer: int | None


def page(chosen: QuerySet, rows: int, before: int | None = None, after: int | None = None) -> KeysetPage:
    """The rows older than `before`, or those just newer than `after`, or the newest."""
    if after is not None:
        found = list(chosen.filter(pk__gt=after).order_by("pk")[: rows + 1])
        if len(found) <= rows:  # the first page is filled to its end, as if it had been asked for
            return page(chosen, rows)
        kept = found[:rows][::-1]
        return KeysetPage(kept, kept[-1].pk, kept[0].pk)
    found = list((chosen if before is None else chosen.filter(pk__lt=before)).order_by("-pk")[: rows + 1])
    kept = found[:rows]
    return KeysetPage(
        kept,
        kept[-1].pk if len(found) > rows else None,
        kept[0].pk if before is not None and kept else None,
    )


def counted(chosen: QuerySet) -> int:
    """How many there are, up to one more than MOST_COUNTED: nobody reads the difference beyond that."""
    return chosen.order_by()[: MOST_COUNTED + 1].count()
