"""Help: the documentation in the console's own frame, and a search over it."""

from django.http import FileResponse, Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.views.decorators.http import require_safe

from console.accounts.access import requires
from console.help import contents
from console.help.rendering import rendered
from console.pages.frame.frame import show

MOST_FOUND = 30
LONGEST_SEARCH = 200


@require_safe
@requires("plant.view")
def page(request: HttpRequest, address: str = "") -> HttpResponseBase:
    """Context: the page, its body and headings, `parts` (the table of contents) and `open_part`; `words` and
    `found` of a search (`?q=`). An address that ends in .png answers with the picture.
    """
    if address in contents.pictures():
        return FileResponse(contents.pictures()[address].open("rb"), content_type="image/png")
    shown = contents.by_address().get(address)
    if shown is None:
        raise Http404(f"Help has no page {address}.")
    words = request.GET.get("q", "")[:LONGEST_SEARCH].strip()
    return show(
        request,
        "help/help.html",
        "help",
        "frame",
        shown=shown,
        rendered=rendered(shown.source, reverse("help")),
        parts=contents.parts(),
        open_part=next(part for part in contents.parts() if shown in part.every_page()),
        words=words,
        found=contents.search(words)[:MOST_FOUND] if words else None,
    )
