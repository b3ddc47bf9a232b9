"""Long answers sent in pieces: rows are never all in memory, and other requests don't wait."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

import orjson
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from common.files import iterate_csv_text
from console.accounts.access import Actor, actor_of, add_request_id
from console.audit import audit_log
from workers.coordination import keyset

ROWS = 2_000
CSV, JSON_LINES = "text/csv; charset=utf-8", "application/x-ndjson"


def stream_download(request: HttpRequest, pieces: Iterator[str], name: str, content_type: str) -> HttpResponseBase:
    """Return the pieces as a download of that file name, made as fast as they are read. HEAD gets only headers."""
    response: HttpResponseBase
    if asks_for_headers(request):
        response = HttpResponse(content_type=content_type)
    else:
        # Under ASGI a plain iterator would be read to its end before the first byte is sent.
        content = _iterate_asynchronously(pieces) if isinstance(request, ASGIRequest) else pieces
        response = StreamingHttpResponse(content, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["X-Accel-Buffering"] = "no"
    return response


def asks_for_headers(request: HttpRequest) -> bool:
    """Return whether only the headers will be sent (`console.web.head`)."""
    return request.method == "HEAD" or getattr(request, "weir_head", False)


async def _iterate_asynchronously(pieces: Iterator[str]) -> AsyncIterator[str]:
    """Make each piece in the request's own thread, which has its database connection.

    The end is also recorded there if the reader disconnects.
    """
    following = sync_to_async(lambda: next(pieces, None))
    try:
        while (piece := await following()) is not None:
            yield piece
    finally:
        await sync_to_async(pieces.close)()  # type: ignore[attr-defined]


def record_export(
    request: HttpRequest, what: str, pages: Iterable[Sequence[Any]], **more: object
) -> Iterator[Sequence[Any]]:
    """Return the pages, with two entries in the audit log.

    The first, written before the first row is sent, has the actor and the filter; the second has the number of rows
    when the export ends or is interrupted. A repetition within a minute has none. Raises `RateLimited`.
    """
    if asks_for_headers(request):
        return iter(())
    actor = caller(request)
    target, after = request.path[:200], {"filter": format_query(request), **more}
    if audit_log.record(actor, f"export.{what}", target, after=after) is None:
        return iter(pages)
    return _count_pages(actor, what, target, pages)


def _count_pages(actor: Actor, what: str, target: str, pages: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    rows, whole = 0, False
    try:
        for page in pages:
            rows += len(page)
            yield page
        whole = True
    finally:
        audit_log.record(actor, f"export.{what}.end", target, after={"rows": rows, "whole": whole})


def caller(request: HttpRequest) -> Actor:
    """Return the actor: of the API a token or a person, of a page a person."""
    actor = getattr(request, "auth", None)
    return add_request_id(request, actor) if isinstance(actor, Actor) else actor_of(request)


def format_query(request: HttpRequest) -> dict[str, str]:
    """Return the query, shortened for an entry."""
    return {name[:40]: str(value)[:200] for name, value in list(request.GET.items())[:20]}


def iterate_newest_first(chosen: QuerySet[Any], rows: int = ROWS) -> Iterator[list[Any]]:
    """Return all rows by descending id, a page at a time, without reading rows twice and without a lock."""
    listed = keyset.load_page(chosen, rows)
    while listed.rows:
        yield listed.rows
        if listed.older is None:
            return
        listed = keyset.load_page(chosen, rows, before=listed.older)


def format_json_lines(pages: Iterable[Iterable[dict[str, Any]]]) -> Iterator[str]:
    """Return documents as JSON lines, a page at a time."""
    for page in pages:
        yield "".join(f"{orjson.dumps(document).decode()}\n" for document in page)


def export(
    request: HttpRequest, pages: Iterable[Iterable[dict[str, Any]]], header: Sequence[str], name: str, format: str
) -> HttpResponseBase:
    """Return pages of documents with the keys of `header`, as `csv` or as `json` (lines)."""
    listed = record_export(request, name, map(list, pages))
    if format == "csv":
        table = ([list(document.values()) for document in page] for page in listed)
        return stream_download(request, iterate_csv_text(header, table), f"{name}.csv", CSV)
    return stream_download(request, format_json_lines(listed), f"{name}.jsonl", JSON_LINES)
