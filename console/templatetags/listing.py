"""Long lists of a large plant: the worst rows first, and all of them on request (`?rows=all`).

Every row on a page is updated each second; a thousand of them would keep a browser busy with invisible changes.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django import template
from django.contrib.auth.models import User
from django.db.models import Model, QuerySet
from django.template.context import Context
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from console.display.states import rank
from console.models import SavedFilter
from controllers.worker_rate import law as worker_rate
from queues.models import Node, Queue
from workers.alerts.lifecycle.inhibition import GRAVITY
from workers.documents.loops import LoopStatus
from workers.documents.queues import ContainerStatus
from workers.documents.snapshot import Snapshot
from workers.documents.states import SubjectState

register = template.Library()
WORKER_RATE = worker_rate.LAW.name
MAX_ROWS = 60
MAX_COLUMNS = 16
MAX_SUGGESTED = 500  # values that a field offers: a page stays small, and browsers filter them as people type
Row = tuple[str, Any]


@register.inclusion_tag("frame/saved_filters.html", takes_context=True)
def saved_views(context: Context, page: str) -> dict[str, Any]:
    """Show the user's saved filters of a list, and the form that saves the query of the page's address as a filter."""
    request = context["request"]
    query = request.GET.copy()
    for place in ("before", "after", "at"):
        query.pop(place, None)
    saved = SavedFilter.objects.filter(user=request.user, page=page).order_by("name")
    return {
        "saved": saved if request.user.is_authenticated else (),
        "list": page,
        "asked": query.urlencode(),
        "csrf_token": context.get("csrf_token"),
    }


@dataclass(frozen=True)
class Listing:
    """Rows as (name, row), and their total number."""

    rows: list[Row]
    total: int

    @property
    def left_out(self) -> int:
        """Return how many are not among the rows."""
        return self.total - len(self.rows)


@dataclass(frozen=True, kw_only=True)
class JobContainer:
    """A container of a jobs queue, and the handler of its events."""

    queue: str
    node: str
    handler: str | None
    container: ContainerStatus


def wait_of(container: ContainerStatus) -> tuple[float, float]:
    """Return the wait of a container; a backlog of unknown wait sorts as the longest."""
    waiting, oldest = container.waiting_events or 0, container.oldest_seconds
    return (math.inf if oldest is None and waiting else oldest or 0.0, waiting)


def get_unserved_backlog(loop: LoopStatus) -> float:
    """Return the backlog that no started worker will take, according to the loop's last decision."""
    return loop.terms.get("backlog_events") or 0.0


ORDERS: dict[str, Callable[[Any], Any]] = {
    "containers": lambda place: wait_of(place.container),
    "managers": get_unserved_backlog,
}

BY_STATE = {"nodes": "node", "queues": "queue"}  # worst first, by their evaluated states


@register.simple_tag(takes_context=True)
def listed(context: Context, rows: Mapping[str, Any], order: str) -> Listing:
    """Return named rows in their own order while there are few; otherwise the worst of them."""
    request = context.get("request")
    everything = list(rows.items())
    if len(everything) <= MAX_ROWS or (request is not None and request.GET.get("rows") == "all"):
        return Listing(everything, len(everything))
    if order in BY_STATE:
        everything.sort(key=lambda row: rank(context["snapshot"], BY_STATE[order], row[0]), reverse=True)
    else:
        everything.sort(key=lambda row: ORDERS[order](row[1]), reverse=True)
    return Listing(everything[:MAX_ROWS], len(everything))


@register.filter
def job_containers(snapshot: Snapshot) -> dict[str, JobContainer]:
    """Return the containers of the jobs queues, by loop name."""
    return {
        f"{WORKER_RATE}/{name}/{node}": JobContainer(queue=name, node=node, handler=queue.handler, container=container)
        for name, queue in snapshot.queues.items()
        if queue.kind == "jobs"
        for node, container in queue.containers.items()
    }


@register.filter
def silent_hosts(snapshot: Snapshot) -> list[SubjectState]:
    """Return worker hosts that reported until recently, and are not in the snapshot any more."""
    states = snapshot.states.values()
    return [row for row in states if row.kind == "host" and row.stale and row.name not in snapshot.hosts]


@register.filter
def managers(snapshot: Snapshot) -> dict[str, LoopStatus]:
    """Return the loops that decide how many workers a container gets, by name."""
    rows = snapshot.loops.items()
    return {name: loop for name, loop in rows if loop.law == WORKER_RATE and "queue" in loop.target}


@register.filter
def fits_a_matrix(rows: Mapping[str, Any]) -> bool:
    """Return whether a table with a column for each is still readable."""
    return len(rows) <= MAX_COLUMNS


@register.simple_tag
def known_subjects() -> SafeString:
    """Render the suggestions of a field for a severity, a queue, or a node (list="known-subjects")."""
    return _render_datalist("known-subjects", [*GRAVITY, *_list_names(Queue, "name"), *_list_names(Node, "name")])


@register.simple_tag
def known_users() -> SafeString:
    """Render the suggestions of a field for a user (list="known-users")."""
    return _render_datalist("known-users", _list_names(User, "username"))


@register.simple_tag
def known_capabilities(snapshot: Snapshot | None) -> SafeString:
    """Render the suggestions of a field for a capability of a worker host (list="known-capabilities")."""
    hosts = snapshot.hosts.values() if snapshot else ()
    names = {name for host in hosts for name in host.capabilities}
    return _render_datalist("known-capabilities", sorted(names)[:MAX_SUGGESTED])


@register.simple_tag
def active_users() -> list[str]:
    """Return the users that a person can choose from, and one more than MAX_SUGGESTED if there are more."""
    return list(_query_names(User, "username").filter(is_active=True)[: MAX_SUGGESTED + 1])


@register.simple_tag
def choose(name: str, value: str, known: Iterable[str], empty: str) -> SafeString:
    """Render a field for one of the known values: a list to choose from; if they are more than MAX_SUGGESTED, a text.

    empty: what no value means. A present value that is no longer known stays until somebody changes it.
    """
    values = list(known)
    if len(values) > MAX_SUGGESTED:
        suggested = _render_datalist(f"{name}-known", values[:MAX_SUGGESTED])
        field = '<input name="{}" value="{}" list="{}-known" maxlength="150" autocomplete="off" placeholder="{}">{}'
        return format_html(field, name, value, name, empty, suggested)
    offered = values if not value or value in values else [value, *values]
    options = format_html_join(
        "",
        '<option value="{}"{}>{}</option>',
        ((option, mark_safe(" selected") if option == value else "", option or empty) for option in ("", *offered)),
    )
    return format_html('<select name="{}">{}</select>', name, options)


def _list_names(model: type[Model], field: str) -> list[str]:
    return list(_query_names(model, field)[:MAX_SUGGESTED])


def _query_names(model: type[Model], field: str) -> QuerySet[Any, str]:
    names: QuerySet[Any, str] = model._default_manager.order_by(field).values_list(field, flat=True)
    return names


def _render_datalist(name: str, values: Iterable[str]) -> SafeString:
    options = format_html_join("", '<option value="{}">', ((value,) for value in values))
    return format_html('<datalist id="{}">{}</datalist>', name, options)
