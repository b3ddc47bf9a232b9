"""A long answer sent piece by piece: a million rows never stand in memory, and nobody else waits for them."""

import csv
import io
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import orjson
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse

from workers import keyset

ROWS = 2_000
FORMULA = ("=", "+", "-", "@", "\t", "\r")
CSV, JSON_LINES = "text/csv; charset=utf-8", "application/x-ndjson"


def streamed(
    request: HttpRequest, pieces: Iterable[str], name: str, content_type: str
) -> StreamingHttpResponse:
    """The pieces as a download of that file name, made as fast as they are taken."""
    # Under ASGI a plain iterator would be read to its end before the first byte goes out.
    content = _asynchronous(iter(pieces)) if isinstance(request, ASGIRequest) else pieces
    response = StreamingHttpResponse(content, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["X-Accel-Buffering"] = "no"
    return response


async def _asynchronous(pieces: Iterator[str]) -> AsyncIterator[str]:
    """Each piece is made in the request's own thread, where its database connection is."""
    following = sync_to_async(lambda: next(pieces, None))
    while (piece := await following()) is not None:
        yield piece


def newest_first(chosen: QuerySet, rows: int = ROWS) -> Iterator[list[Any]]:
    """All rows by falling id, a page at a time: no page reads what another has read, and no lock is held."""
    listed = keyset.page(chosen, rows)
    while listed.rows:
        yield listed.rows
        if listed.older is None:
            return
        listed = keyset.page(chosen, rows, before=listed.older)


def csv_lines(header: Sequence[str], pages: Iterable[Iterable[Sequence[Any]]]) -> Iterator[str]:
    """A table as CSV text, a page of rows at a time."""
    yield _written([header])
    for page in pages:
        yield _written(page)


def _written(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Documents as JSON, times as ISO 8601; text that a spreadsheet would take for a formula is marked."""
    if isinstance(value, dict | list):
        return orjson.dumps(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def json_lines(pages: Iterable[Iterable[dict[str, Any]]]) -> Iterator[str]:
    """Documents as JSON, a line each, a page at a time."""
    for page in pages:
        yield "".join(f"{orjson.dumps(document).decode()}\n" for document in page)


def export(
    request: HttpRequest,
    pages: Iterable[Iterable[dict[str, Any]]],
    header: Sequence[str],
    name: str,
    format: str,
) -> StreamingHttpResponse:
    """Pages of documents with the keys of `header`, as `csv` or as `json` (lines)."""
    if format == "csv":
        table = ([list(document.values()) for document in page] for page in pages)
        return streamed(request, csv_lines(header, table), f"{name}.csv", CSV)
    return streamed(request, json_lines(pages), f"{name}.jsonl", JSON_LINES)
