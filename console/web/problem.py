"""Errors for programs: always an RFC 9457 document, whether a view, a middleware, the API, or Django rejects.

The members are those of the RFC (`type`, `title`, `status`, `detail`, `instance`), `request_id` (by which the log is
searched), `field` if one is named, `errors` ({field: [what it takes]}), and other members of the answer.
"""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson
from django.db import IntegrityError
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from common.errors import RateLimited
from console.storage.database_limits import AWAY, TOO_LONG, is_away, is_over_time
from console.web.template_context import TemplateContext, render_context
from console.web.web_request import get_web_request

logger = logging.getLogger(__name__)
CONTENT_TYPE = "application/problem+json"
PROGRAM_PATHS = ("/api/", "/control/", "/mcp")
PROGRAM_PAGES = ("/healthz", "/readyz", "/metrics")
UNNAMED = ("request", "path", "role", "authorization", "csrf")  # keys of `errors` that are no field of the input
DETAILS = {
    400: "The request can't be read.",
    403: "This is not permitted.",
    404: "This address does not exist.",
    409: "Another user made a conflicting change at the same time, so your change was rejected. Reload the"
    " page, check the current state, and send your change again if necessary.",
    413: "The body is too large.",
    429: "Too many attempts. Wait, then try again.",
    500: "An internal error occurred. Find the cause in the log of the web process under this request_id.",
}
# Database errors: a unique value exists, or a referenced one does not. (Others are errors of Weir.)
MET_ANOTHER = {
    "23505",
    "23503",
    "SQLITE_CONSTRAINT_UNIQUE",
    "SQLITE_CONSTRAINT_PRIMARYKEY",
    "SQLITE_CONSTRAINT_FOREIGNKEY",
}
RETRY_SECONDS = 5  # if the database did not answer in time
FORGED = "The CSRF token is missing or wrong. Send X-CSRFToken, or use an API token."
SCHEMA = {
    "type": "object",
    "description": "RFC 9457.",
    "required": ["type", "title", "status", "detail", "instance", "request_id", "errors"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "request_id": {"type": "string"},
        "field": {"type": "string"},
        "errors": {"type": ["object", "array"]},
    },
}


@dataclass(frozen=True, kw_only=True)
class FailedPage(TemplateContext):
    """The console failed; the log has the cause under request_id."""

    TEMPLATE = "500.html"

    request_id: str


@dataclass(frozen=True, kw_only=True)
class NoDatabasePage(TemplateContext):
    """The page for a database that did not answer.

    sentence: why, and what to do. comes_back: it reloads automatically. was_sent: it answers a form.
    """

    TEMPLATE = "503.html"

    sentence: str
    comes_back: bool
    was_sent: bool
    retry_seconds: int = RETRY_SECONDS


@dataclass(frozen=True, kw_only=True)
class ForgedPage(TemplateContext):
    """A form without a valid CSRF token."""

    TEMPLATE = "403_csrf.html"


def document(status: int, instance: str, request_id: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a problem with the members of `said`, whose `errors` give detail and field."""
    errors = said.get("errors") or {"request": [said.get("detail") or DETAILS.get(status, _get_status_phrase(status))]}
    field, detail = _find_first_error(errors)
    return {
        "type": "about:blank",
        "title": _get_status_phrase(status),
        "status": status,
        "detail": f"{field}: {detail}" if field else detail,
        "instance": instance,
        "request_id": request_id,
        **({"field": field} if field else {}),
        **said,
        "errors": errors,
    }


def _get_status_phrase(status: int) -> str:
    return HTTPStatus(status).phrase


def _find_first_error(errors: list[dict[str, Any]] | dict[str, Any]) -> tuple[str, str]:
    """Return the field ("" if none is named) and the message of the first error, of a list that of its first line."""
    if isinstance(errors, list):
        line = errors[0]
        return f"line {line['line']}", str(line["error"])
    field, messages = next(iter(errors.items()))
    return "" if field in UNNAMED else field, str(messages[0])


def wants_json(request: HttpRequest) -> bool:
    return "application/json" in request.headers.get("Accept", "")


def is_for_a_program(request: HttpRequest) -> bool:
    """Return whether the client is a program, by the address or because it requests JSON (as scripts of pages do)."""
    path = request.path_info
    return path.startswith(PROGRAM_PATHS) or path in PROGRAM_PAGES or wants_json(request)


class Problems(MiddlewareMixin):
    """Makes every error for a program a problem document, with the headers of the rejection."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer database errors.

        Two requests created something unique (a name, an open run), or one removed what the other needs, and the
        database permitted one of them. Or it did not answer, or not in time.
        """
        if (sentence := _explain_unavailable(exception)) is not None:
            logger.warning("%s got no response from the database: %s", request.path, exception)
            return _answer_database_error(request, sentence)
        if isinstance(exception, RateLimited):
            response = HttpResponse(str(exception), status=429, content_type="text/plain; charset=utf-8")
            response["Retry-After"] = str(exception.seconds)
            return response
        if not isinstance(exception, IntegrityError) or _code(exception) not in MET_ANOTHER:
            return None
        logger.warning("%s conflicted with another change: %s", request.path, exception)
        return HttpResponse(DETAILS[409], status=409, content_type="text/plain; charset=utf-8")

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if response.status_code < 400 or response.streaming or not is_for_a_program(request):
            return response
        told = document(
            response.status_code, request.path, get_web_request(request).request_id, _read_members(response)
        )
        response.content = orjson.dumps(told, default=str)
        response["Content-Type"] = CONTENT_TYPE
        response["Content-Length"] = str(len(response.content))  # CommonMiddleware has counted the one before
        return response


def _code(error: IntegrityError) -> str:
    """Return PostgreSQL's SQLSTATE, or SQLite's name of the error."""
    cause = error.__cause__
    return str(getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", ""))


def _read_members(response: HttpResponse) -> dict[str, Any]:
    """Return the members of a JSON rejection; of a page or a text, only the permitted methods."""
    if response.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return {"detail": f"This address accepts {response.get('Allow') or 'another method'}."}
    kind = response.get("Content-Type", "")
    if "json" in kind:
        read = orjson.loads(response.content)
        return read if isinstance(read, dict) else {}
    if kind.startswith("text/plain") and response.content and response.status_code != 500:
        return {"detail": response.content.decode().strip()}
    return {}


def _explain_unavailable(error: BaseException | None) -> str | None:
    """Return the message if the database is the cause, and not the page."""
    if is_over_time(error):
        return TOO_LONG
    return AWAY if is_away(error) else None


def _answer_database_error(request: HttpRequest, sentence: str) -> HttpResponse:
    if is_for_a_program(request):
        response = HttpResponse(sentence, status=503, content_type="text/plain; charset=utf-8")
    else:
        was_sent = request.method not in ("GET", "HEAD")
        # A slow page is not reloaded automatically, which would increase the database's load.
        comes_back = sentence == AWAY and not was_sent
        page = NoDatabasePage(sentence=sentence, comes_back=comes_back, was_sent=was_sent)
        response = render_context(None, page, 503)
    response["Retry-After"] = str(RETRY_SECONDS)
    return response


def answer_failure(request: HttpRequest) -> HttpResponse:
    """Answer 500 (handler500).

    Django has logged the traceback, once; the answer contains nothing of it, and needs no database, whose failure may
    be the cause, even in middleware.
    """
    if (sentence := _explain_unavailable(sys.exception())) is not None:
        return _answer_database_error(request, sentence)
    request_id = getattr(request, "request_id", "")
    return render_context(None, FailedPage(request_id=request_id), 500)


def answer_forgery(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a CSRF failure (CSRF_FAILURE_VIEW)."""
    if is_for_a_program(request):
        return HttpResponse(orjson.dumps({"errors": {"csrf": [FORGED]}}), status=403, content_type="application/json")
    return render_context(request, ForgedPage(), 403)
