"""A page: a context that says what its template may read, rendered within the frame of every page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from console.live.view import view_named
from console.pages.frame.declared_page import help_of
from console.pages.frame.frame import snapshot_of
from console.web.template_context import TemplateContext
from queues.stored_document import plain
from workers.documents.snapshot import Snapshot

Document = dict[str, Any]  # plain JSON, for scripts and exports; what templates read is typed
Errors = Mapping[str, Sequence[str]]  # field → what it takes
Submitted = Mapping[str, Any]  # what was typed into a form that was refused; empty otherwise


@dataclass(frozen=True, kw_only=True)
class ConsolePage(TemplateContext):
    """Base of all pages: `NAME` is the page's name on the rail, and of its page in Help."""

    NAME: ClassVar[str]


@dataclass(frozen=True, kw_only=True)
class FormPage(ConsolePage):
    """A page with forms: what was refused stands beside its field, with what was typed."""

    errors: Errors = field(default_factory=dict)
    submitted: Submitted = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FrameContext(TemplateContext):
    """What the frame reads, and every page may: beside it `frame` (`console.pages.frame.frame.Frame`).

    view: the part of the snapshot (`console.live.view`) that the page's scripts get as `watched`, and follow.
    snapshot: the newest, or that of the instant asked for; None while there is none.
    help_address: of the page in Help, from /help/ on.
    """

    TEMPLATE = "base.html"

    page: str
    help_address: str
    view: str
    snapshot: Snapshot | None
    watched: Document | None


def render_page(
    request: HttpRequest, page: ConsolePage, view: str = "whole", status: int = 200
) -> HttpResponse:
    """The page within the frame. view: see `FrameContext`."""
    snapshot = snapshot_of(request)
    # A page that only has parts of it written anew (static/js/values/refresh.js) has the snapshot already.
    parts_only = "X-Weir-Parts" in request.headers
    frame = FrameContext(
        page=page.NAME,
        help_address=help_of(page.NAME),
        view=view,
        snapshot=snapshot,
        watched=None if parts_only or not snapshot else view_named(view).narrow(plain(snapshot)),
    )
    text = render_to_string(page.TEMPLATE, {**frame.values(), **page.values()}, request)
    return HttpResponse(text, status=status)
