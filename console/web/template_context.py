"""What a template may read: a context, declared beside the view that fills it."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string


@dataclass(frozen=True, kw_only=True)
class TemplateContext:
    """The fields of a subclass are all that its `TEMPLATE` may read, beside what a context processor adds."""

    TEMPLATE: ClassVar[str]

    def values(self) -> dict[str, Any]:
        """Each field by its name, as it is: nothing is copied."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def text_of_context(context: TemplateContext, request: HttpRequest | None = None) -> str:
    """The template, filled in. Without a request no context processor runs, so no database is needed."""
    return render_to_string(context.TEMPLATE, context.values(), request)


def render_context(request: HttpRequest | None, context: TemplateContext, status: int = 200) -> HttpResponse:
    """An answer without the frame of the console's pages: a part of a page, or a page that stands alone."""
    return HttpResponse(text_of_context(context, request), status=status)
