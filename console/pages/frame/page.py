"""A page: a context that declares what its template may read, rendered within the frame."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from common.stored_document import convert_to_plain
from console.live.view import find_view
from console.pages.frame.declared_page import help_of
from console.pages.frame.frame import snapshot_of
from console.web.template_context import TemplateContext
from workers.documents.snapshot import Snapshot

Document = dict[str, Any]  # plain JSON for scripts and exports; templates read typed values
Errors = Mapping[str, Sequence[str]]  # field → its error message
Submitted = Mapping[str, Any]  # what was typed into a rejected form; empty otherwise


@dataclass(frozen=True, kw_only=True)
class ConsolePage(TemplateContext):
    """Base of all pages. `NAME` is the name of the page on the rail, and of its page in Help."""

    NAME: ClassVar[str]


@dataclass(frozen=True, kw_only=True)
class FormPage(ConsolePage):
    """A page with forms: errors are shown next to their fields, with the typed values."""

    errors: Errors = field(default_factory=dict)
    submitted: Submitted = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FrameContext(TemplateContext):
    """The data that the frame reads, and every page may read.

    It is in addition to `frame` (`console.pages.frame.frame.Frame`). view: the part of the snapshot
    (`console.live.view`) that the page's scripts get as `watched`, and follow. snapshot: the newest, or that of the
    requested instant; None while there is none. help_address: of the page in Help, after /help/.
    """

    TEMPLATE = "base.html"

    page: str
    help_address: str
    view: str
    snapshot: Snapshot | None
    watched: Document | None


def render_page(request: HttpRequest, page: ConsolePage, view: str = "whole", status: int = 200) -> HttpResponse:
    """Render the page within the frame. view: see `FrameContext`."""
    snapshot = snapshot_of(request)
    # A page that only replaces parts of itself (static/js/values/refresh.js) already has the snapshot.
    parts_only = "X-Weir-Parts" in request.headers
    frame = FrameContext(
        page=page.NAME,
        help_address=help_of(page.NAME),
        view=view,
        snapshot=snapshot,
        watched=None if parts_only or not snapshot else find_view(view).narrow(convert_to_plain(snapshot)),
    )
    text = render_to_string(page.TEMPLATE, {**frame.collect_values(), **page.collect_values()}, request)
    return HttpResponse(text, status=status)
