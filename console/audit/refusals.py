"""Refusals in the audit: who tried what they may not do, or something dangerous that is refused to everybody.

A refused request's transaction is rolled back, so its refusals are kept aside and written when it has ended,
in a transaction of their own. Nobody fills the audit with them: each process notes MOST_A_MINUTE of an actor
within a minute, equal ones once; what is above is counted, and the actor's next entry says how many it was.
"""

import logging
import threading
import time
from collections import OrderedDict
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

logger = logging.getLogger(__name__)
FAMILY = "refused"
MOST_A_MINUTE = 20
MINUTE_SECONDS = 60.0
MOST_ACTORS = 1_000
LONGEST_TARGET, LONGEST_REASON, LONGEST_ACTION = 200, 500, 80


@dataclass(frozen=True)
class Refusal:
    """What was refused. `target` "": what the request asked for."""

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
class _Minute:
    """What one actor was refused within a minute."""

    since: float
    noted: set[tuple[str, str, str]] = field(default_factory=set)
    uncounted: int = 0


class Fold:
    """Which refusals are written. Thread-safe; the least recent of MOST_ACTORS actors is forgotten."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._minutes: OrderedDict[str, _Minute] = OrderedDict()
        self._lock = threading.Lock()

    def admit(self, refusal: Refusal) -> int | None:
        """None: counted only. Else how many of the actor were counted only since the last entry."""
        with self._lock:
            minute = self._minute_of(refusal.actor)
            if refusal.same_as in minute.noted or len(minute.noted) >= MOST_A_MINUTE:
                minute.uncounted += 1
                return None
            minute.noted.add(refusal.same_as)
            folded, minute.uncounted = minute.uncounted, 0
            return folded

    def _minute_of(self, actor: str) -> _Minute:
        now = self._monotonic()
        minute = self._minutes.setdefault(actor, _Minute(now))
        self._minutes.move_to_end(actor)
        if now - minute.since >= MINUTE_SECONDS:
            minute.since, minute.noted = now, set()
        while len(self._minutes) > MOST_ACTORS:
            self._minutes.popitem(last=False)
        return minute


@dataclass
class _Request:
    """What a request asked for, and what of it was refused."""

    asked: str
    refusals: list[Refusal] = field(default_factory=list)


_current: ContextVar[_Request | None] = ContextVar("refusals_of_the_request", default=None)
fold = Fold()


def note(refusal: Refusal) -> None:
    """Note a refusal. Within a request it is written when the request has ended, else now."""
    request = _current.get()
    if request is None:
        _write(refusal)
    else:
        request.refusals.append(refusal)


@contextmanager
def collected(asked: str) -> Iterator[None]:
    """What is refused within is written at the end, whatever was rolled back. `asked`: the target of a
    refusal that names none, such as `POST /plants/register`.
    """
    request = _Request(asked[:LONGEST_TARGET])
    token = _current.set(request)
    try:
        yield
    finally:
        _current.reset(token)
        _write_all(request)


@sync_and_async_middleware
def refusals_recorded(get_response: Callable[..., Any]) -> Callable[..., Any]:
    """The middleware that writes a request's refusals after its answer was made."""
    if iscoroutinefunction(get_response):

        async def asynchronously(request: HttpRequest) -> HttpResponse:
            heads_on_disk = _Request(f"{request.method} {request.path}"[:LONGEST_TARGET])
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
        with collected(f"{request.method} {request.path}"):
            response: HttpResponse = get_response(request)
        return response

    return synchronously


def _write_all(request: _Request) -> None:
    for refusal in request.refusals:
        _write(refusal, request.asked)


def _write(refusal: Refusal, asked: str = "") -> None:
    """A database that does not take it must not turn a refusal into an error."""
    folded = fold.admit(refusal)
    if folded is None:
        return
    after = refusal.after if not folded else {"refused_before_and_not_noted": folded, "about": refusal.after}
    try:
        chain.append(
            actor=_plain(refusal.actor, LONGEST_TARGET),
            action=_plain(f"{FAMILY}.{refusal.action}", LONGEST_ACTION),
            target=_plain(refusal.target or asked, LONGEST_TARGET),
            reason=_plain(refusal.reason, LONGEST_REASON),
            after=after,
            address=refusal.address,
            request_id=refusal.request_id,
        )
    except DatabaseError as error:
        logger.warning("A refusal of %s to %s was not noted: %s", refusal.action, refusal.actor, error)


def _plain(text: str, longest: int) -> str:
    """Without what a database refuses: an address or a name may be made of anything."""
    return "".join(each if each.isprintable() else "?" for each in text[:longest])
