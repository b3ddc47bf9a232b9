"""An action of a page: authorized, answered with JSON for fetch() and with a redirect for a plain form."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import redis
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST
from django.views.defaults import permission_denied

from common.errors import BadInput, NodeFull, NodeUnavailable, RateLimited
from console.accounts.access import ConfirmationNeeded, requires
from console.accounts.login import add_next_parameter, page_of
from console.web.problem import wants_json
from console.web.web_request import WebRequest

Refused = Callable[..., HttpResponse]


class UncertainErrors(dict[str, list[str]]):
    """Errors after which part of the action may be done, so the page must not claim that nothing changed."""

    unsure = True


@dataclass(frozen=True)
class ActionResult:
    """The result of an action: a sentence, a link, and details for fetch() (an id to undo it with)."""

    message: str
    url: str
    data: dict[str, Any] = field(default_factory=dict)


def declare_action(
    permission: str, page: Refused
) -> Callable[[Callable[..., ActionResult]], Callable[..., HttpResponseBase]]:
    """Return a decorator for a POST view that returns `ActionResult` or raises `BadInput`.

    Only `BadInput` means that nothing was changed: fetch() gets 422 (429 for a quota) `{"errors": {field: [message]}}`;
    for a plain form, `page` is rendered again (called with those view arguments that it accepts, `errors`, and
    `submitted`), with the message next to its field.
    """

    def decorate(view: Callable[..., ActionResult]) -> Callable[..., HttpResponseBase]:
        shown = _adapt_arguments(page)

        @require_POST
        @requires(permission)
        @functools.wraps(view)
        def respond(request: HttpRequest, **named: Any) -> HttpResponse:
            try:
                done = view(request, **named)
            except RateLimited as error:
                refused = _refusal(request, shown, named, {error.field: [error.message]}, 429)
                refused["Retry-After"] = str(error.seconds)
                return refused
            except BadInput as error:
                return _refusal(request, shown, named, {error.field: [error.message]}, 422)
            except (NodeUnavailable, NodeFull) as error:
                return _refusal(request, shown, named, UncertainErrors(node=[str(error)]), 503)
            except redis.RedisError as error:
                return _refusal(request, shown, named, UncertainErrors(control=[_describe_no_answer(error)]), 503)
            if wants_json(request):
                return JsonResponse({"ok": True, "message": done.message, **done.data})
            messages.success(request, done.message)
            return redirect(done.url)

        return respond

    return decorate


def _describe_no_answer(error: redis.RedisError) -> str:
    """Return the message for a service that did not answer.

    A request that timed out may still act. A failed connection does nothing.
    """
    asked = isinstance(error, redis.TimeoutError) or type(error) is redis.ConnectionError
    if asked and "connecting to" not in str(error):
        return (
            f"did not respond in time ({error}). The change may have been made. Check, "
            "and send it again if it was not made."
        )
    return f"is not responding ({error}). Nothing was changed; try again in a moment."


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Handle 403: name the required role, or redirect to the identity confirmation and back.

    The role is named in the requested format.
    """
    if isinstance(exception, ConfirmationNeeded):
        cast(WebRequest, request).weir_not_done = True  # frees its key: the request is sent again
        if not wants_json(request):
            return redirect(add_next_parameter(reverse("confirm"), page_of(request)))
        said = {"errors": {"confirm": [str(exception)]}, "confirm": reverse("confirm")}
        return JsonResponse(said, status=403)
    if wants_json(request):
        return JsonResponse({"errors": {"role": [str(exception)]}}, status=403)
    return permission_denied(request, exception)


def _adapt_arguments(page: Refused) -> Refused:
    """Return the page function, called with those view arguments that it accepts.

    The list around a form does not take the id of the row that the form is about.
    """
    taken = inspect.signature(page).parameters
    if any(argument.kind is argument.VAR_KEYWORD for argument in taken.values()):
        return page
    return lambda request, **named: page(request, **{name: value for name, value in named.items() if name in taken})


def _refusal(
    request: HttpRequest, page: Refused, named: dict[str, Any], errors: dict[str, list[str]], status: int
) -> HttpResponse:
    if wants_json(request):
        return JsonResponse({"errors": errors}, status=status)
    response = page(request, **named, errors=errors, submitted=request.POST)
    response.status_code = status
    return response


def text_of(request: HttpRequest, name: str, what: str) -> str:
    """Return a required posted text, stripped. Raises `BadInput` that names it."""
    value = request.POST.get(name, "").strip()
    if not value:
        raise BadInput(name, f"is missing; {what}.")
    return value
