"""Help: the documentation in the console's own frame, and its search."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import FileResponse, Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from console.help import contents
from console.help.contents import HelpGroup, HelpPage
from console.help.rendering import RenderedPage, render_markdown
from console.pages.frame.page import ConsolePage, declare_page, render_page

MAX_FOUND = 30
MAX_SEARCH = 200


@dataclass(frozen=True, kw_only=True)
class DocumentationPage(ConsolePage):
    """A page of the documentation. words, results: of a search (`?q=`)."""

    TEMPLATE, NAME = "help/help.html", "help"

    rendered: RenderedPage
    parts: Sequence[HelpGroup]  # the table of contents
    open_part: HelpGroup
    shown: HelpPage
    words: str
    results: Sequence[HelpPage] | None


@declare_page("plant.view")
def page(request: HttpRequest, address: str = "") -> HttpResponseBase:
    """Show the page at an address; an address that ends in .png returns the picture."""
    if address in contents.list_pictures():
        return FileResponse(contents.list_pictures()[address].open("rb"), content_type="image/png")
    shown = contents.index_by_address().get(address)
    if shown is None:
        raise Http404(f"Help has no page {address}.")
    words = request.GET.get("q", "")[:MAX_SEARCH].strip()
    read = DocumentationPage(
        shown=shown,
        rendered=render_markdown(shown.source, reverse("help")),
        parts=contents.build_contents(),
        open_part=next(part for part in contents.build_contents() if shown in part.list_pages()),
        words=words,
        results=contents.search(words)[:MAX_FOUND] if words else None,
    )
    return render_page(request, read, "frame")
