"""Validation of HTTP input, once, before other code reads it.

Text that can't be stored is rejected with its field. Text is UTF-8 without NUL (PostgreSQL stores none) and without
lone surrogates (no database stores those). JSON documents have at most MAX_DEPTH levels, and numbers of at most 64
bits.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain
from typing import Any

import orjson
from django.conf import settings
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation, TooManyFieldsSent
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.utils.deprecation import MiddlewareMixin
from ninja.parser import Parser

from common.documents import parse_json
from common.errors import BadInput
from console.input.storable import UNSTORABLE, is_plain
from console.web.problem import is_for_a_program
from console.web.template_context import TemplateContext, render_context
from console.web.web_request import get_web_request

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
HEADERS = ("User-Agent", "Authorization", "Idempotency-Key", "X-Request-ID", "Referer", "Host")
MAX_DEPTH = 64
MAX_DOCUMENT_BYTES = 2 * 2**20
# An Alertmanager's report: 200 alerts, which may have long annotations.
REPORT_PATH, MAX_REPORT_BYTES = "/api/v1/alerts/reported", 8 * 2**20
MAX_DOCUMENT_VALUES = 500_000
MAX_NUMBER = 2**63


@dataclass(frozen=True, kw_only=True)
class RefusedPage(TemplateContext):
    """The request can't be read."""

    TEMPLATE = "refused.html"

    field: str
    message: str
    title: str


class Boundary(MiddlewareMixin):
    """Rejects text that can't be stored: 404 in a path, 400 in cookies and headers, 422 in a field."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        if not is_plain(request.path_info):
            return build_refusal(request, 404, "path", "This page does not exist.")
        for name in HEADERS:
            if not is_plain(request.headers.get(name, "")):
                return build_refusal(request, 400, name, UNSTORABLE)
        for name, value in request.COOKIES.items():
            if not (is_plain(name) and is_plain(value)):
                return build_refusal(request, 400, "Cookie", UNSTORABLE)
        try:
            return _first_refusal(request, request.GET.lists())
        except TooManyFieldsSent:
            most = settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
            return build_refusal(request, 400, "query", f"must have at most {most:,} parameters.")

    def process_view(self, request: HttpRequest, *view: object) -> HttpResponse | None:
        if (
            request.method != "POST"
            or request.content_type not in FORMS
            or (request.path_info.startswith(("/api/", "/control/")))
        ):
            return None
        try:
            files = [(name, [file.name for file in held]) for name, held in request.FILES.lists()]
            return _first_refusal(request, chain(request.POST.lists(), files))
        except RequestDataTooBig:
            return build_refusal(request, 413, "body", "is too large for a form.")
        except (SuspiciousOperation, MultiPartParserError, UnreadablePostError):
            return build_refusal(request, 400, "body", "must be a valid form.")


def _first_refusal(request: HttpRequest, fields: Iterable[tuple[str, Sequence[str | None]]]) -> HttpResponse | None:
    for name, values in fields:
        if not is_plain(name):
            return build_refusal(request, 422, "request", f"A field name {UNSTORABLE}")
        if not all(is_plain(value or "") for value in values):
            return build_refusal(request, 422, name, UNSTORABLE)
    return None


def build_refusal(request: HttpRequest, status: int, field: str, message: str) -> HttpResponse:
    """Return JSON for a program (which `Problems` completes), a page for a person."""
    if is_for_a_program(request):
        body = orjson.dumps({"errors": {field[:100]: [message]}})
        return HttpResponse(body, status=status, content_type="application/json")
    page = RefusedPage(field=field, message=message, title=HTTPStatus(status).phrase)
    return render_context(None, page, status)


class Documents(Parser):
    """The API's JSON parser.

    ninja reports errors without details: `weir_unreadable` keeps the status and the message.
    """

    def parse_body(self, request: HttpRequest) -> Any:
        try:
            return self._document(request)
        except BadInput as error:
            get_web_request(request).weir_unreadable = getattr(request, "weir_unreadable", (422, error))
            raise

    def _document(self, request: HttpRequest) -> Any:
        most_bytes = MAX_REPORT_BYTES if is_report(request.path_info) else MAX_DOCUMENT_BYTES
        if why := _describe_excess(request.body, most_bytes):
            error = BadInput("body", why)
            get_web_request(request).weir_unreadable = (413, error)
            raise error
        try:
            return document_of(request.body)
        except orjson.JSONDecodeError as fault:
            error = BadInput("body", f"must be valid JSON: {fault}.")
            get_web_request(request).weir_unreadable = (400, error)
            raise error from None


def is_report(path: str) -> bool:
    """Return whether an address accepts an Alertmanager's reports."""
    return path.rstrip("/") == REPORT_PATH


def _describe_excess(body: bytes, most_bytes: int) -> str:
    """Return why a document is too large, "" if it is not.

    Values take far longer to parse than their bytes, so they are counted before: each follows one of these characters.
    """
    if len(body) > most_bytes:
        return f"must have at most {most_bytes} bytes."
    if len(body) > MAX_DOCUMENT_BYTES and sum(map(body.count, (b",", b"[", b"{"))) > MAX_DOCUMENT_VALUES:
        return f"must have at most {MAX_DOCUMENT_VALUES} values when larger than {MAX_DOCUMENT_BYTES} bytes."
    return ""


def document_of(body: bytes) -> Any:
    """Parse JSON strictly. Raises `JSONDecodeError`, or `BadInput` that names a field with an invalid value."""
    read = parse_json_body(body)
    for field, value, depth in _iterate_values(read):
        if depth > MAX_DEPTH:
            raise BadInput(field, f"must be nested at most {MAX_DEPTH} levels deep.")
        if isinstance(value, str) and not is_plain(value):
            raise BadInput(field, UNSTORABLE)
        # A larger whole number is parsed as a float; NaN is not in the range either.
        if isinstance(value, float | int) and not -MAX_NUMBER <= value < MAX_NUMBER:
            raise BadInput(field, "must be a finite number of at most 64 bits.")
    return read


def parse_json_body(body: bytes) -> Any:
    """Parse JSON without validating its values. Raises `JSONDecodeError`, and `BadInput` if it is nested too deeply."""
    try:
        return parse_json(body)
    except RecursionError:
        raise BadInput("body", f"must be nested at most {MAX_DEPTH} levels deep.") from None


def _iterate_values(document: object) -> Iterator[tuple[str, Any, int]]:
    """Yield every key and value with its top-level field and its depth."""
    waiting: list[tuple[str, Any, int]] = [("body", document, 0)]
    while waiting:
        place, value, depth = waiting.pop()
        yield place, value, depth
        if isinstance(value, dict):
            for key, held in value.items():
                yield place, key, depth
                waiting.append((key if depth == 0 else place, held, depth + 1))
        elif isinstance(value, list):
            waiting += [(place, held, depth + 1) for held in value]
