"""Saved filters of users: the address of a list is the filter."""

from urllib.parse import parse_qsl, urlencode

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from console.models import SavedFilter

MAX_NAME, MAX_QUERY, MAX_FILTERS = 60, 1_000, 30
PLACES = ("at", "before", "after")  # the user's position in time and in the list, not part of a filter


@transaction.atomic
def save(actor: Actor, user: User, page: str, name: str, query: str) -> SavedFilter:
    """Save a query under a name, replacing one of the same name. Raises `BadInput` that names the field."""
    require_permission(actor, "account.change")
    name, kept = name.strip(), urlencode([pair for pair in parse_qsl(query) if pair[0] not in PLACES])
    if page not in SavedFilter.Page.values:
        raise BadInput("page", f"must be one of {', '.join(SavedFilter.Page.values)}, not {page[:40]!r}.")
    if not 1 <= len(name) <= MAX_NAME:
        raise BadInput("name", f"must have 1 to {MAX_NAME} characters.")
    if not 1 <= len(kept) <= MAX_QUERY:
        raise BadInput("query", f"must have 1 to {MAX_QUERY:,} characters. Choose a filter first.")
    others = list_filters(user, page).exclude(name=name)
    if others.count() >= MAX_FILTERS:
        raise BadInput("name", f"exceeds the limit: a page has at most {MAX_FILTERS} filters. Remove a filter first.")
    row, _ = SavedFilter.objects.update_or_create(user=user, page=page, name=name, defaults={"query": kept})
    audit_log.record(actor, "filter.save", str(row), after={"page": page, "name": name, "query": kept})
    return row


@transaction.atomic
def remove(actor: Actor, user: User, number: int) -> None:
    """Remove one of the user's own filters. Raises `BadInput` if it does not exist."""
    require_permission(actor, "account.change")
    row = SavedFilter.objects.filter(user=user, pk=number).first()
    if row is None:
        raise BadInput("filter", "is not one of your filters.")
    audit_log.record(actor, "filter.remove", str(row), before={"query": row.query})
    row.delete()


def list_filters(user: User, page: str) -> QuerySet[SavedFilter]:
    return SavedFilter.objects.filter(user=user, page=page).order_by("name")
