"""Rejections in the audit log, and limits for actions that anybody may repeat, so that nobody can fill the log.

Forbidden attempts, and dangerous requests that are rejected for everybody, are recorded. A rejected request's
transaction is rolled back, so its rejections are collected and written afterwards, in their own transaction.

The audit log is never deleted. Two limits apply to rejections, and to actions that need no role above viewer:

- **Folding**, in each process: an entry that equals one of the last minute is counted. The next entry of that
  action says how many were counted. For actions that must never be rejected, such as a changed password, each
  process also counts what is above MAX_A_MINUTE.
- **A budget**, on the control server, shared by all processes and all tokens of an account: MAX_AT_ONCE
  entries, then one each SECONDS_FOR_ONE. Beyond it the action is rejected: nothing is done without an entry.
"""

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import redis
from asgiref.sync import iscoroutinefunction, sync_to_async
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from common.errors import RateLimited
from console.audit import chain
from console.connections.control_server import control
from queues import keys
from queues.lua.script import load_script

logger = logging.getLogger(__name__)
MAX_A_MINUTE = 20
MINUTE_SECONDS = 60.0
MAX_ACTORS = 1_000
MAX_AT_ONCE = 60
SECONDS_FOR_ONE = 10
# Actions, or families of them, that any viewer can repeat. Failed logins are limited by the lockout, and
# tokens are revoked no more often than they are created.
FOLDED = frozenset({"account", "login", "login.confirm", "logout", "session.end"})
BUDGETED = frozenset({"export", "filter", "proposal.make", "token.create"})


@dataclass
class _Minute:
    """The entries recorded for one actor within a minute."""

    since: float
    noted: set[Hashable] = field(default_factory=set)
    uncounted: int = 0


class Fold:
    """Decides which entries are written. Thread-safe; the least recent of MAX_ACTORS actors is forgotten."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._minutes: OrderedDict[str, _Minute] = OrderedDict()
        self._lock = threading.Lock()

    def admit(self, actor: str, content: Hashable) -> int | None:
        """Return None for an entry that is only counted; else the number counted since the last one written.

        `content` is equal for equal entries.
        """
        if (folded := self.ask(actor, content)) is not None:
            self.note(actor, content)
        return folded

    def ask(self, actor: str, content: Hashable, most: int = MAX_A_MINUTE) -> int | None:
        """Answer as `admit`, for an entry that a transaction writes: call `note` when it has ended."""
        with self._lock:
            minute = self._open_current_minute(actor)
            if content in minute.noted or len(minute.noted) >= most:
                minute.uncounted += 1
                return None
            return minute.uncounted

    def note(self, actor: str, content: Hashable) -> None:
        """Remember an entry that was written."""
        with self._lock:
            minute = self._open_current_minute(actor)
            minute.noted.add(content)
            minute.uncounted = 0

    def _open_current_minute(self, actor: str) -> _Minute:
        now = self._monotonic()
        minute = self._minutes.setdefault(actor, _Minute(now))
        self._minutes.move_to_end(actor)
        if now - minute.since >= MINUTE_SECONDS:
            minute.since, minute.noted = now, set()
        while len(self._minutes) > MAX_ACTORS:
            self._minutes.popitem(last=False)
        return minute


entry_fold = Fold()


def is_of(action: str, actions: frozenset[str]) -> bool:
    """Return whether an action, or its family, is among these. Of the family `login` only listed actions count."""
    return action in actions or (action.partition(".")[0] in actions and not action.startswith("login."))


def spend_budget(action: str, account: str) -> None:
    """Take one entry from the account's budget. Raises `RateLimited`, but never without the control server."""
    key = keys.QUOTA.build(f"audit:{account}")
    rate, burst_seconds = 1 / SECONDS_FOR_ONE, MAX_AT_ONCE * SECONDS_FOR_ONE
    try:
        wait_ms = control().eval(load_script("control/take_quota"), 1, key, rate, 1, burst_seconds, 1, 0, 1)
    except redis.RedisError as error:
        logger.warning("The audit rate limit of %s can't be checked: %s", account, error)
        return
    if int(wait_ms):
        seconds = math.ceil(int(wait_ms) / 1000)
        raise RateLimited(
            "audit",
            f"accepts at most {MAX_AT_ONCE} entries such as {action} at once per account, then one every "
            f"{SECONDS_FOR_ONE} s. Nothing was changed. Try again in {seconds} s.",
            seconds,
        )


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
    after: object = None

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
