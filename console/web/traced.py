"""A span for each request, if a collector is configured.

It belongs to its caller's trace if it has one (traceparent).
"""

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import MiddlewareNotUsed
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from workers.observability import spans

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@sync_and_async_middleware
def build_middleware(get_response: Callable[..., Any]) -> Callable[..., Any]:
    """Return the middleware; it runs inside `request_id`, whose id the span has."""
    if not spans.is_enabled():
        raise MiddlewareNotUsed
    if iscoroutinefunction(get_response):

        async def asynchronously(request: HttpRequest) -> HttpResponse:
            with spans.span(_method(request), request.headers):
                response: HttpResponse = await get_response(request)
                _note(request, response)
            return response

        return asynchronously

    def synchronously(request: HttpRequest) -> HttpResponse:
        with spans.span(_method(request), request.headers):
            response: HttpResponse = get_response(request)
            _note(request, response)
        return response

    return synchronously


def _method(request: HttpRequest) -> str:
    return request.method if request.method in METHODS else "_OTHER"


def _note(request: HttpRequest, response: HttpResponse) -> None:
    """Record the route, not the path, which may contain anything."""
    route = f"/{request.resolver_match.route}" if request.resolver_match else "(none)"
    method = _method(request)
    spans.note(
        {"http.request.method": method, "http.route": route, "http.response.status_code": response.status_code},
        f"{method} {route}",
    )
