"""The palette: search for destinations and actions by name."""

from django.http import HttpRequest

from common.errors import BadInput
from console.api.answer.router import Router
from console.api.request.authentication import actor_for
from console.api.schemas.operating import PaletteList, PaletteRow
from console.connections.control_server import load_latest_snapshot
from console.pages.frame import palette

router = Router(tags=["plant"])


@router.get("/palette", response=PaletteList, summary="Search pages, subjects, and actions by name")
def search_everything(request: HttpRequest, text: str = "") -> PaletteList:
    """Return what matches all words of `text` and the caller may use, the best first, at most 20."""
    actor = actor_for(request, "plant.view")
    if len(text) > palette.MAX_TEXT:
        raise BadInput("text", f"must have at most {palette.MAX_TEXT} characters, not {len(text)}.")
    results = palette.search(actor, load_latest_snapshot(), text)
    rows: list[PaletteRow] = [
        {"kind": entry.kind, "label": entry.label, "url": entry.url, "about": entry.about} for entry in results.entries
    ]
    return {"results": rows, "total": results.total}
