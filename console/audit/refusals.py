"""Rejections in the audit log: forbidden attempts, and dangerous requests that are rejected for everybody.

A rejected request's transaction is rolled back, so its rejections are collected and written afterwards, in their own
transaction. They can't fill the audit log: equal ones and floods are folded (`console.audit.repeats`).
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from console.audit import chain
from console.audit.repeats import Fold

logger = logging.getLogger(__name__)
FAMILY = "refused"
MAX_TARGET, MAX_REASON, MAX_ACTION = 200, 500, 80


@dataclass(frozen=True)
class Refusal:
    """A rejection. `target` "": the target of the request."""

    actor: str
    action: str
    target: str
    reason: str
    address: str | None = None
    request_id: str = ""
    after: Any = None

    @property
    def same_as(self) -> tuple[str, str, str]:
        return self.action, self.target, self.reason


@dataclass
class _Request:
    """A request's target and its rejections."""

    asked: str
    refusals: list[Refusal] = field(default_factory=list)


_current: ContextVar[_Request | None] = ContextVar("refusals_of_the_request", default=None)
fold = Fold()


def note(refusal: Refusal) -> None:
    """Record a rejection: within a request after its end, otherwise now."""
    request = _current.get()
    if request is None:
        _write(refusal)
    else:
        request.refusals.append(refusal)


@contextmanager
def collect_refusals(asked: str) -> Iterator[None]:
    """Collect the rejections within, and write them at the end, even after a rollback.

    `asked`: the target of a rejection that names none, such as `POST /plants/register`.
    """
    request = _Request(asked[:MAX_TARGET])
    token = _current.set(request)
    try:
        yield
    finally:
        _current.reset(token)
        _write_all(request)


@sync_and_async_middleware
def refusals_recorded(get_response: Callable[..., Any]) -> Callable[..., Any]:
    """Return the middleware that writes a request's rejections after its answer was made."""
    if iscoroutinefunction(get_response):

        async def asynchronously(request: HttpRequest) -> HttpResponse:
            heads_on_disk = _Request(f"{request.method} {request.path}"[:MAX_TARGET])
            token = _current.set(heads_on_disk)
            try:
                response: HttpResponse = await get_response(request)
            finally:
                _current.reset(token)
            if heads_on_disk.refusals:
                await sync_to_async(_write_all)(heads_on_disk)
            return response

        return asynchronously

    def synchronously(request: HttpRequest) -> HttpResponse:
        with collect_refusals(f"{request.method} {request.path}"):
            response: HttpResponse = get_response(request)
        return response

    return synchronously


def _write_all(request: _Request) -> None:
    for refusal in request.refusals:
        _write(refusal, request.asked)


def _write(refusal: Refusal, asked: str = "") -> None:
    """Write a rejection; a database error must not turn it into another error."""
    folded = fold.admit(refusal.actor, refusal.same_as)
    if folded is None:
        return
    after = refusal.after if not folded else {"refused_before_and_not_noted": folded, "about": refusal.after}
    try:
        chain.append(
            actor=_replace_unprintable(refusal.actor, MAX_TARGET),
            action=_replace_unprintable(f"{FAMILY}.{refusal.action}", MAX_ACTION),
            target=_replace_unprintable(refusal.target or asked, MAX_TARGET),
            reason=_replace_unprintable(refusal.reason, MAX_REASON),
            after=after,
            address=refusal.address,
            request_id=refusal.request_id,
        )
    except DatabaseError as error:
        logger.warning("A rejection of %s to %s was not recorded: %s", refusal.action, refusal.actor, error)


def _replace_unprintable(text: str, longest: int) -> str:
    """Return the text without what a database rejects: an address or a name may contain anything."""
    return "".join(character if character.isprintable() else "?" for character in text[:longest])
