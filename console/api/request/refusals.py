"""How the API says no: `{"errors": {"field": ["what it takes"]}}`, with the status that fits, in a
problem document (`console.web.problem` adds the other members).
"""

from collections.abc import Mapping
from typing import Any

import redis
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from console.accounts.submissions import AnsweredError
from queues.errors import BadInput, BadTopology, NodeUnavailable, QueuePaused, UnknownQueue

RETRY_AFTER_SECONDS = 2
WORDS = {"extra_forbidden": "is not known here.", "missing": "is missing."}


class RefusedError(Exception):
    """A refusal with its own status, such as 413, 415 or 429."""

    def __init__(
        self,
        status: int,
        field: str,
        message: str,
        retry_after_seconds: int | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.field, self.message = status, field, message
        self.retry_after_seconds = retry_after_seconds
        self.more = dict(more or {})


def add_refusals(api: NinjaAPI) -> None:
    """Register a handler for everything that endpoints raise on purpose."""

    def refuse(request: HttpRequest, status: int, field: str, message: str) -> HttpResponse:
        return api.create_response(request, {"errors": {field: [message]}}, status=status)

    def later(response: HttpResponse, seconds: int) -> HttpResponse:
        response["Retry-After"] = str(seconds)
        return response

    @api.exception_handler(BadInput)
    def bad_input(request: HttpRequest, error: BadInput) -> HttpResponse:
        status = 404 if isinstance(error, UnknownQueue) else 422
        return refuse(request, status, error.field or "body", error.message)

    @api.exception_handler(AnsweredError)
    def answered(request: HttpRequest, error: AnsweredError) -> HttpResponse:
        return error.response

    @api.exception_handler(BadTopology)
    def no_topology(request: HttpRequest, error: BadTopology) -> HttpResponse:
        return later(refuse(request, 503, error.field, error.message), RETRY_AFTER_SECONDS)

    @api.exception_handler(RefusedError)
    def refused(request: HttpRequest, error: RefusedError) -> HttpResponse:
        document = {"errors": {error.field: [error.message]}, **error.more}
        response = api.create_response(request, document, status=error.status)
        return response if error.retry_after_seconds is None else later(response, error.retry_after_seconds)

    @api.exception_handler(ValidationError)
    def invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
        return api.create_response(request, {"errors": by_field(error.errors)}, status=422)

    @api.exception_handler(AuthenticationError)
    def unknown(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
        response = refuse(request, 401, "authorization", str(error.message))
        response["WWW-Authenticate"] = "Bearer"
        return response

    @api.exception_handler(PermissionDenied)
    def denied(request: HttpRequest, error: PermissionDenied) -> HttpResponse:
        return refuse(request, 403, "role", str(error))

    @api.exception_handler(Http404)
    def missing(request: HttpRequest, error: Http404) -> HttpResponse:
        return refuse(request, 404, "path", str(error) or "There is nothing here.")

    @api.exception_handler(HttpError)
    def http(request: HttpRequest, error: HttpError) -> HttpResponse:
        if (unreadable := getattr(request, "weir_unreadable", None)) is not None:
            status, cause = unreadable
            return refuse(request, status, cause.field, cause.message)
        return refuse(request, error.status_code, "request", str(error))

    @api.exception_handler(NodeUnavailable)
    def unavailable(request: HttpRequest, error: NodeUnavailable) -> HttpResponse:
        return later(refuse(request, 503, "node", str(error)), RETRY_AFTER_SECONDS)

    @api.exception_handler(QueuePaused)
    def paused(request: HttpRequest, error: QueuePaused) -> HttpResponse:
        return later(refuse(request, 503, "queue", str(error)), error.retry_seconds)

    @api.exception_handler(redis.RedisError)
    def no_control(request: HttpRequest, error: redis.RedisError) -> HttpResponse:
        message = f"The control server does not answer ({error}); try again shortly."
        return later(refuse(request, 503, "control", message), RETRY_AFTER_SECONDS)


def by_field(errors: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Pydantic's errors as messages per field; the field is the last name of its place."""
    named: dict[str, list[str]] = {}
    for error in errors:
        place = [str(part) for part in error.get("loc", ()) if part not in ("body", "query", "path")]
        said = WORDS.get(error.get("type", ""), error["msg"])
        named.setdefault(".".join(place) or "body", []).append(said)
    return named
