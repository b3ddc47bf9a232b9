"""A page and its actions.

A page is a context that declares what its template may read, rendered within the frame. An action of a page is
authorized, and answered with JSON for fetch() and with a redirect for a plain form.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypedDict, TypeVar

import redis
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from django.views.defaults import permission_denied

from common.errors import BadInput, NodeFull, NodeUnavailable, RateLimited
from common.stored_document import convert_to_plain
from console.accounts.access import ChangeFrozen, ConfirmationNeeded, requires
from console.accounts.login import add_next_parameter, page_of
from console.display.override_words import describe_replaced_overrides
from console.live.view import find_view
from console.navigation import PagePlace, find_place, help_of
from console.pages.frame.frame import snapshot_of
from console.web.problem import wants_json
from console.web.template_context import TemplateContext
from console.web.web_request import get_web_request
from workers.documents.snapshot import Snapshot
from workers.models import Override

Document = dict[str, Any]  # plain JSON for scripts and exports; templates read typed values
Errors = Mapping[str, Sequence[str]]  # field → its error message
Submitted = Mapping[str, Any]  # what was typed into a rejected form; empty otherwise
View = Callable[..., HttpResponseBase]
Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class ConsolePage(TemplateContext):
    """Base of all pages. `NAME` is the name of the page on the rail, and of its page in Help."""

    NAME: ClassVar[str]


@dataclass(frozen=True, kw_only=True)
class FormPage(ConsolePage):
    """A page with forms: errors are shown next to their fields, with the typed values (`RejectedForm`)."""

    errors: Errors = field(default_factory=dict)
    submitted: Submitted = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FrameContext(TemplateContext):
    """The data that the frame reads, and every page may read.

    It is in addition to `frame` (`console.pages.frame.frame.Frame`). view: the part of the snapshot
    (`console.live.view`) that the page's scripts get as `watched`, and follow. snapshot: the newest, or that of the
    requested instant; None while there is none. help_address: of the page in Help, after /help/. place: in the
    navigation, None for pages outside its groups.
    """

    TEMPLATE = "base.html"

    page: str
    help_address: str
    place: PagePlace | None
    view: str
    snapshot: Snapshot | None
    watched: Document | None


@dataclass(frozen=True)
class RejectedForm:
    """A form that was rejected in this request: its errors, and what was typed. Both are empty if none was."""

    errors: Errors = field(default_factory=dict)
    submitted: QueryDict = field(default_factory=QueryDict)


class UncertainErrors(dict[str, Sequence[str]]):
    """Errors after which part of the action may be done, so the page must not claim that nothing changed."""

    unsure = True


def get_rejected_form(request: HttpRequest) -> RejectedForm:
    form: RejectedForm = getattr(request, "weir_rejected_form", RejectedForm())
    return form


def declare_page(permission: str) -> Callable[[View], View]:
    """Decorate a view that shows a page to those who may do `permission`."""
    return lambda view: require_safe(requires(permission)(view))


def render_page(request: HttpRequest, page: ConsolePage, view: str = "whole", status: int = 200) -> HttpResponse:
    """Render the page within the frame, and a rejected form with its errors. view: see `FrameContext`."""
    if isinstance(page, FormPage):
        rejected = get_rejected_form(request)
        errors: dict[str, Sequence[str]] = {**page.errors, **rejected.errors}
        if isinstance(rejected.errors, UncertainErrors):
            errors = UncertainErrors(errors)
        page = replace(page, errors=errors, submitted=rejected.submitted or page.submitted)
    snapshot = snapshot_of(request)
    # A page that only replaces parts of itself (static/js/values/refresh.js) already has the snapshot.
    parts_only = "X-Weir-Parts" in request.headers
    frame = FrameContext(
        page=page.NAME,
        help_address=help_of(page.NAME),
        place=find_place(page.NAME, request.resolver_match.url_name if request.resolver_match else None),
        view=view,
        snapshot=snapshot,
        watched=None if parts_only or not snapshot else find_view(view).narrow(convert_to_plain(snapshot)),
    )
    text = render_to_string(page.TEMPLATE, {**frame.collect_values(), **page.collect_values()}, request)
    return HttpResponse(text, status=status)


def render_rejected(
    request: HttpRequest, page: View, errors: Errors, status: int = 422, named: Mapping[str, Any] | None = None
) -> HttpResponse:
    """Render a page again with the errors next to its fields, and the values that were posted.

    The page is called with those of the view arguments `named` that it accepts: the list around a form does not take
    the id of the row that the form is about. The role of the page itself was not checked; that of the action was.
    """
    get_web_request(request).weir_rejected_form = RejectedForm(errors, request.POST)
    response = call_page(page, request, **(named or {}))
    response.status_code = status
    return response


def call_page(page: View, request: HttpRequest, **named: object) -> HttpResponse:
    """Call a declared page from another view, with those arguments that it accepts."""
    function = inspect.unwrap(page)
    taken = inspect.signature(function).parameters
    response: HttpResponse = function(request, **{name: value for name, value in named.items() if name in taken})
    return response


def read_or(otherwise: Value, read: Callable[[], Value]) -> Value:
    """Return what `read` reads from the control server; `otherwise` while it does not answer."""
    try:
        return read()
    except redis.RedisError:
        return otherwise


class UndoOffer(TypedDict):
    """The request that undoes an action: the address and the fields to post."""

    url: str
    fields: dict[str, str]


def offer_end(key: str) -> UndoOffer:
    """Return the undo of an action that made the manual change of this key (`console.actions.manual_changes`)."""
    return {"url": reverse("manual-change-end"), "fields": {"key": key, "anyway": "true", "reason": "Undone"}}


@dataclass(frozen=True)
class ActionResult:
    """The result of an action: a sentence, a link, and details for fetch() (`undo`: an `UndoOffer`)."""

    message: str
    url: str
    data: dict[str, Any] = field(default_factory=dict)


def declare_action(permission: str, page: View) -> Callable[[Callable[..., ActionResult]], View]:
    """Return a decorator for a POST view that returns `ActionResult` or raises `BadInput`.

    Only `BadInput` means that nothing was changed: fetch() gets 422 (429 for a quota) `{"errors": {field: [message]}}`;
    for a plain form, `page` is rendered again, with the message next to its field.
    """

    def decorate(view: Callable[..., ActionResult]) -> View:
        @require_POST
        @requires(permission)
        @functools.wraps(view)
        def respond(request: HttpRequest, **named: object) -> HttpResponse:
            def refuse(errors: Errors, status: int) -> HttpResponse:
                if wants_json(request):
                    return JsonResponse({"errors": errors}, status=status)
                return render_rejected(request, page, errors, status, named)

            try:
                done = view(request, **named)
            except RateLimited as error:
                refused = refuse({error.field: [error.message]}, 429)
                refused["Retry-After"] = str(error.seconds)
                return refused
            except BadInput as error:
                return refuse({error.field: [error.message]}, 422)
            except (NodeUnavailable, NodeFull) as error:
                return refuse(UncertainErrors(node=[str(error)]), 503)
            except redis.RedisError as error:
                return refuse(UncertainErrors(control=[_describe_no_answer(error)]), 503)
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
    return f"is not responding ({error}). Nothing was changed. Try again in a moment."


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Handle 403: name the required role, or redirect to the identity confirmation and back.

    The role is named in the requested format.
    """
    if isinstance(exception, ConfirmationNeeded):
        get_web_request(request).weir_not_done = True  # frees its key: the request is sent again
        if not wants_json(request):
            return redirect(add_next_parameter(reverse("confirm"), page_of(request)))
        said = {"errors": {"confirm": [str(exception)]}, "confirm": reverse("confirm")}
        return JsonResponse(said, status=403)
    if wants_json(request):
        field = "form" if isinstance(exception, ChangeFrozen) else "role"
        return JsonResponse({"errors": {field: [str(exception)]}}, status=403)
    return permission_denied(request, exception)


def open_page(message: str, name: str, *args: object, **data: object) -> ActionResult:
    """Return a result after which a script opens the page of this name, too."""
    url = reverse(name, args=args)
    return ActionResult(message, url, {**data, "go": url})


def report_overrides(message: str, made: Sequence[Override], name: str, *args: object) -> ActionResult:
    """Return a result on the page of this name, with the overrides that it replaces, and the ids to undo it with."""
    data: dict[str, Any] = {}
    if made:
        undo: UndoOffer = {"url": reverse("override-undo", args=[made[0].pk]), "fields": {}}
        data = {"overrides": [override.pk for override in made], "undo": undo}
    return ActionResult(message + describe_replaced_overrides(made), reverse(name, args=args), data)


def text_of(request: HttpRequest, name: str, what: str) -> str:
    """Return a required posted text, stripped. Raises `BadInput` that names it.

    what: what to do about a missing text, as an imperative sentence without its full stop.
    """
    value = request.POST.get(name, "").strip()
    if not value:
        raise BadInput(name, f"is missing. {what}.")
    return value


def read_reason(request: HttpRequest) -> str:
    """Return the required reason of a posted form. Raises `BadInput`."""
    return text_of(request, "reason", "Give a reason for the audit log")
