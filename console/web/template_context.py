"""The context of a template: declared beside the view that fills it."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string


@dataclass(frozen=True, kw_only=True)
class TemplateContext:
    """The fields of a subclass are all that its `TEMPLATE` may read, beside what a context processor adds."""

    TEMPLATE: ClassVar[str]

    def collect_values(self) -> dict[str, Any]:
        """Return each field by its name, uncopied."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def render_context_text(context: TemplateContext, request: HttpRequest | None = None) -> str:
    """Return the rendered template. Without a request no context processor runs, so no database is needed."""
    return render_to_string(context.TEMPLATE, context.collect_values(), request)


def render_context(request: HttpRequest | None, context: TemplateContext, status: int = 200) -> HttpResponse:
    """Return an answer without the frame of the console's pages: a part of a page, or a stand-alone page."""
    return HttpResponse(render_context_text(context, request), status=status)
