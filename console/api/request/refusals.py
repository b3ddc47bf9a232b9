"""Rejections by the API, with the matching status, in a problem document.

The form is `{"errors": {"field": ["what it takes"]}}`. `console.web.problem` adds its other members.
"""

from collections.abc import Callable, Mapping
from typing import Any

import redis
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from common.errors import (
    BadInput,
    BadTopology,
    NodeUnavailable,
    QueuePaused,
    RateLimited,
    UnknownQueue,
    describe_connection_error,
)
from console.accounts.submissions import AnsweredError

RETRY_AFTER_SECONDS = 2
WORDS = {"extra_forbidden": "is unknown.", "missing": "is missing."}


class RefusedError(Exception):
    """A rejection with its own status, such as 413, 415, or 429."""

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


def _answer_bad_request(request: HttpRequest, error: HttpError) -> RefusedError:
    """Answer a body that could not be read, with the cause if known."""
    if (unreadable := getattr(request, "weir_unreadable", None)) is not None:
        status, cause = unreadable
        return RefusedError(status, cause.field, cause.message)
    return RefusedError(error.status_code, "request", str(error))


def build_no_snapshot() -> RefusedError:
    """Return the rejection of requests that need a snapshot when there is none."""
    message = "There is no snapshot yet, this version can't read it, or the control server is not responding."
    return RefusedError(503, "snapshot", message, RETRY_AFTER_SECONDS)


# What endpoints raise on purpose → status, field, message, and seconds until a retry.
REFUSALS: Mapping[type[Exception], Callable[[HttpRequest, Any], RefusedError]] = {
    RateLimited: lambda _, error: RefusedError(429, error.field, error.message, error.seconds),
    BadInput: lambda _, error: RefusedError(
        404 if isinstance(error, UnknownQueue) else 422, error.field or "body", error.message
    ),
    BadTopology: lambda _, error: RefusedError(503, error.field, error.message, RETRY_AFTER_SECONDS),
    RefusedError: lambda _, error: error,
    AuthenticationError: lambda _, error: RefusedError(401, "authorization", str(error.message)),
    PermissionDenied: lambda _, error: RefusedError(403, "role", str(error)),
    Http404: lambda _, error: RefusedError(404, "path", str(error) or "Not found."),
    HttpError: _answer_bad_request,
    NodeUnavailable: lambda _, error: RefusedError(503, "node", str(error), RETRY_AFTER_SECONDS),
    QueuePaused: lambda _, error: RefusedError(503, "queue", str(error), error.retry_seconds),
    redis.RedisError: lambda _, error: RefusedError(
        503,
        "control",
        f"The control server is not responding ({describe_connection_error(error)}). Try again in a moment.",
        RETRY_AFTER_SECONDS,
    ),
}


def add_refusals(api: NinjaAPI) -> None:
    """Register a handler for everything that endpoints raise on purpose."""

    def build_handler(refusal_of: Callable[[HttpRequest, Any], RefusedError]) -> Callable[..., HttpResponse]:
        def handle(request: HttpRequest, error: object) -> HttpResponse:
            refusal = refusal_of(request, error)
            document = {"errors": {refusal.field: [refusal.message]}, **refusal.more}
            response = api.create_response(request, document, status=refusal.status)
            if refusal.retry_after_seconds is not None:
                response["Retry-After"] = str(refusal.retry_after_seconds)
            if isinstance(error, AuthenticationError):
                response["WWW-Authenticate"] = "Bearer"
            return response

        return handle

    for kind, refusal_of in REFUSALS.items():
        api.add_exception_handler(kind, build_handler(refusal_of))

    @api.exception_handler(AnsweredError)
    def answer(request: HttpRequest, error: AnsweredError) -> HttpResponse:
        return error.response

    @api.exception_handler(ValidationError)
    def invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
        return api.create_response(request, {"errors": group_by_field(error.errors)}, status=422)


def group_by_field(errors: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return Pydantic's errors as messages by field; the field is the last name of its location."""
    named: dict[str, list[str]] = {}
    for error in errors:
        place = [str(part) for part in error.get("loc", ()) if part not in ("body", "query", "path")]
        said = WORDS.get(error.get("type", ""), error["msg"])
        named.setdefault(".".join(place) or "body", []).append(said)
    return named
