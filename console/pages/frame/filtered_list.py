"""A filtered list, such as the ledger: position and filter from its address, its rows, and a user's saved filters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from common.errors import BadInput
from console.accounts.access import actor_of, user_of
from console.actions import saved_filters
from console.input.form_values import parse_row_id, parse_time
from console.models import SavedFilter
from console.pages.frame.page import ActionResult, Errors, declare_action
from workers.control.ledger.runs import TickRunPage
from workers.coordination import keyset

PLACES = ("before", "after")
PAGE_ROWS = 50


@dataclass(frozen=True, kw_only=True)
class FilteredList:
    """The fields of a page with a filtered list; the page's own context inherits them.

    query: what the links to the next and previous page keep.
    """

    listed: keyset.KeysetPage | TickRunPage
    counted: int  # at most one more than most_counted
    most_counted: int
    filters: QueryDict
    errors: Errors
    query: str


Row = TypeVar("Row", bound=Model)
Filter = TypeVar("Filter")


class RowFilter(Protocol[Row]):
    """A filter of a list's rows."""

    def choose(self, rows: QuerySet[Row], /) -> QuerySet[Row]: ...


def build_listing(
    request: HttpRequest,
    read: Callable[[QueryDict], RowFilter[Row]],
    rows: QuerySet[Row],
    page: Callable[..., keyset.KeysetPage | TickRunPage] = keyset.load_page,
) -> FilteredList:
    """Build the list for an address. `read` makes a filter of a query; a rejected filter lists nothing."""
    wanted, errors = read_filter(read, request.GET)
    chosen = rows.none() if wanted is None else wanted.choose(rows)
    listed = page(chosen, PAGE_ROWS, **place_of(request.GET))
    return FilteredList(
        listed=listed,
        counted=keyset.count_listed(chosen, listed),
        most_counted=keyset.MAX_COUNTED,
        filters=request.GET,
        errors=errors,
        query=query_without_place(request),
    )


def place_of(query: Mapping[str, str]) -> dict[str, int | None]:
    """Return `before` and `after`, ids of rows. Invalid ids are left out, since old links must still open."""
    return {name: parse_row_id(query.get(name, "")) for name in PLACES}


def span_of(query: Mapping[str, str]) -> dict[str, datetime | None]:
    """Return `from` and `to` as times, None if absent. Raises `BadInput`."""
    given = {"since": "from", "until": "to"}
    return {
        name: parse_time(query[field].strip(), field) if query.get(field, "").strip() else None
        for name, field in given.items()
    }


def query_without_place(request: HttpRequest) -> str:
    """Return the query without its position, for the links to other pages."""
    query = request.GET.copy()
    for name in PLACES:
        query.pop(name, None)
    return query.urlencode()


def read_filter(read: Callable[[QueryDict], Filter], query: QueryDict) -> tuple[Filter | None, dict[str, list[str]]]:
    """Read a filter from an address; return an empty filter and the field's message if it is invalid."""
    try:
        return read(query), {}
    except BadInput as error:
        return None, {error.field: [error.message]}


def _get_list_url(request: HttpRequest) -> str:
    page = request.POST.get("page", "")
    return reverse(page if page in SavedFilter.Page.values else "ledger")


def _show_list_again(request: HttpRequest) -> HttpResponse:
    """Return to the filtered list; a form without a script shows nothing more."""
    return redirect(_get_list_url(request))


@declare_action("account.change", _show_list_again)
def save(request: HttpRequest) -> ActionResult:
    """Save a filter. Posted: page, name, query."""
    posted = request.POST
    texts = [posted.get(name, "") for name in ("page", "name", "query")]
    kept = saved_filters.save(actor_of(request), user_of(request), *texts)
    return ActionResult(f"Filter {kept.name} saved.", f"{reverse(kept.page)}?{kept.query}", {"filter": kept.pk})


@declare_action("account.change", _show_list_again)
def remove(request: HttpRequest) -> ActionResult:
    """Remove a filter. Posted: page, filter (its number)."""
    saved_filters.remove(actor_of(request), user_of(request), parse_row_id(request.POST.get("filter", "")) or 0)
    return ActionResult("Filter removed.", _get_list_url(request))
