"""The API's own views, called in this process by a known actor, which no external request can imitate."""

from collections.abc import Iterable
from io import BytesIO
from typing import Any, cast
from urllib.parse import unquote

from django.core.handlers.wsgi import WSGIRequest
from django.urls import resolve

from console.accounts.access import Actor
from console.audit import refusals
from console.input.boundary import Boundary
from console.web.web_request import WebRequest


def call(method: str, path: str, content: bytes, actor: Actor) -> tuple[int, Iterable[bytes]]:
    """Return (status, pieces of the body) of the view at a path with its query."""
    address, _, query = path.partition("?")
    address = unquote(address)  # as a server does, before Django sees it
    request = WSGIRequest(
        {
            "REQUEST_METHOD": method,
            "PATH_INFO": address.encode().decode("latin1"),
            "QUERY_STRING": query,
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(content)),
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "wsgi.input": BytesIO(content),
            "wsgi.url_scheme": "http",
        }
    )
    noted = cast(WebRequest, request)
    noted.request_id, noted.weir_local_actor = actor.request_id, actor
    view, positional, places = resolve(request.path_info)
    with refusals.collect_refusals(f"{method} {address}"):
        # As before every request: text that no database stores is rejected with its field.
        response: Any = Boundary(view).process_request(request) or view(request, *positional, **places)
    return response.status_code, response if response.streaming else [response.content]
