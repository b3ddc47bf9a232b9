"""An action from a page: authorised, answered with JSON to fetch() and with a redirect to a plain form."""

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

from console.accounts.access import ConfirmationNeeded, requires
from console.accounts.login import address_with_next, page_of
from console.web.problem import wants_json
from console.web.web_request import WebRequest
from queues.errors import BadInput, NodeFull, NodeUnavailable, RateLimited

Refused = Callable[..., HttpResponse]


class Unsure(dict[str, list[str]]):
    """Errors after which some of it may be done: the page does not say that nothing was changed."""

    unsure = True


@dataclass(frozen=True)
class Done:
    """What an action did: a sentence, where to read on, and what fetch() may want (an id to undo it with)."""

    message: str
    url: str
    data: dict[str, Any] = field(default_factory=dict)


def action(
    permission: str, page: Refused
) -> Callable[[Callable[..., Done]], Callable[..., HttpResponseBase]]:
    """A POST view that returns Done or raises BadInput.

    On BadInput, and on no other error, nothing was changed: fetch() gets 422 (429 for a quota)
    `{"errors": {field: [message]}}`, a plain form `page` again (called with those of the view's arguments
    that it takes, `errors` and `submitted`), with the message beside its field.
    """

    def decorate(view: Callable[..., Done]) -> Callable[..., HttpResponseBase]:
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
                return _refusal(request, shown, named, Unsure(node=[str(error)]), 503)
            except redis.RedisError as error:
                return _refusal(request, shown, named, Unsure(control=[_describe_no_answer(error)]), 503)
            if wants_json(request):
                return JsonResponse({"ok": True, "message": done.message, **done.data})
            messages.success(request, done.message)
            return redirect(done.url)

        return respond

    return decorate


def _describe_no_answer(error: redis.RedisError) -> str:
    """One that was asked, and did not answer, may do it yet; one that could not be asked does nothing."""
    asked = isinstance(error, redis.TimeoutError) or type(error) is redis.ConnectionError
    if asked and "connecting to" not in str(error):
        return (
            f"does not answer in time ({error}): whether it was done is not known. See whether it was, and "
            "send it again if not."
        )
    return f"does not answer ({error}); nothing was changed, try again shortly."


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler403: says which role it takes, in the form that was asked for; or leads to where one proves anew
    who one is, and back.
    """
    if isinstance(exception, ConfirmationNeeded):
        cast(WebRequest, request).weir_not_done = True  # its key is free: it is sent again after that
        if not wants_json(request):
            return redirect(address_with_next(reverse("confirm"), page_of(request)))
        said = {"errors": {"confirm": [str(exception)]}, "confirm": reverse("confirm")}
        return JsonResponse(said, status=403)
    if wants_json(request):
        return JsonResponse({"errors": {"role": [str(exception)]}}, status=403)
    return permission_denied(request, exception)


def _adapt_arguments(page: Refused) -> Refused:
    """The page, given those of a view's arguments that it has a place for: the list that a form stands on
    does not know of the row that its form is about.
    """
    taken = inspect.signature(page).parameters
    if any(each.kind is each.VAR_KEYWORD for each in taken.values()):
        return page
    return lambda request, **named: page(
        request, **{name: value for name, value in named.items() if name in taken}
    )


def _refusal(
    request: HttpRequest, page: Refused, named: dict[str, Any], errors: dict[str, list[str]], status: int
) -> HttpResponse:
    if wants_json(request):
        return JsonResponse({"errors": errors}, status=status)
    response = page(request, **named, errors=errors, submitted=request.POST)
    response.status_code = status
    return response


def text_of(request: HttpRequest, name: str, what: str) -> str:
    """A posted text that must be there, stripped. Raises BadInput naming it."""
    value = request.POST.get(name, "").strip()
    if not value:
        raise BadInput(name, f"is missing; {what}.")
    return value
