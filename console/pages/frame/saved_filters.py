"""A user's saved filters of a list, shown as links above it; saved and removed there."""

from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from console.accounts.access import actor_of
from console.actions import saved_filters
from console.input.row_id import parse_row_id
from console.models import SavedFilter
from console.pages.frame.action import ActionResult, declare_action
from console.pages.frame.page import Errors


def filters_of(request: HttpRequest, page: str) -> list[SavedFilter]:
    """Return the user's filters."""
    return list(saved_filters.list_filters(request.user, page))


def _back(request: HttpRequest, errors: Errors, submitted: QueryDict, **named: Any) -> HttpResponse:
    """Return to the filtered list; a form without a script shows nothing more."""
    page = str(submitted.get("page", ""))
    return redirect(reverse(page if page in SavedFilter.Page.values else "ledger"))


@declare_action("account.change", _back)
def save(request: HttpRequest) -> ActionResult:
    """Save a filter. Posted: page, name, query."""
    posted = request.POST
    texts = [posted.get(name, "") for name in ("page", "name", "query")]
    kept = saved_filters.save(actor_of(request), request.user, *texts)
    return ActionResult(f"Filter {kept.name} saved.", f"{reverse(kept.page)}?{kept.query}", {"filter": kept.pk})


@declare_action("account.change", _back)
def remove(request: HttpRequest) -> ActionResult:
    """Remove a filter. Posted: page, filter (its number)."""
    saved_filters.remove(actor_of(request), request.user, parse_row_id(request.POST.get("filter", "")) or 0)
    page = request.POST.get("page", "")
    return ActionResult("Filter removed.", reverse(page if page in SavedFilter.Page.values else "ledger"))
