"""Authentication by token, and of a connection before Django has a request of it.

Wrong API tokens are counted per address: above MAX_FAILURES within WINDOW_SECONDS they are answered 429. A valid token
is never rejected because of others at its address.
"""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import redis
from channels.db import database_sync_to_async
from django.utils import timezone

from console.accounts.access import NOBODY, Actor, find_token_actor, get_session_actor, parse_bearer_secret
from console.audit import refusals
from console.connections.client_addresses import normalize_address
from console.connections.control_server import control
from queues import keys

logger = logging.getLogger(__name__)
MAX_FAILURES = 20
WINDOW_SECONDS = 900


class TooManyFailures(Exception):  # noqa: N818 - it is an answer, not a fault
    """This address sent too many wrong tokens and has to wait."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"More than {MAX_FAILURES} invalid tokens came from your address. Try again in {seconds} s.")
        self.seconds = seconds


def authenticate_token(secret: str | None, now: datetime, address: str | None, request_id: str = "") -> Actor | None:
    """Return the actor of the token; None for an invalid token. Raises `TooManyFailures` instead of None."""
    actor = find_token_actor(secret, now, address) if secret else None
    if actor is not None or address is None:
        return actor
    count(address, request_id, "unknown token", "token unknown, expired, or revoked")
    return None


def count(address: str, request_id: str, who: str, why: str) -> None:
    """Count a failed authentication. Raises `TooManyFailures`."""
    refusals.note(refusals.Refusal(who, "login", "", why, address, request_id))
    if (seconds := _count_failure(address)) > 0:
        raise TooManyFailures(seconds)


def _count_failure(address: str) -> int:
    """Count a failure; return the seconds to wait, 0 while there are few."""
    key = keys.TOKEN_FAILURES.build(normalize_address(address))
    try:
        with control().pipeline() as pipe:
            pipe.incr(key)
            pipe.expire(key, WINDOW_SECONDS, nx=True)
            pipe.ttl(key)
            count, _, left = pipe.execute()
    except redis.RedisError as error:
        logger.warning("Invalid tokens can't be counted: %s", error)
        return 0
    return max(1, left) if count > MAX_FAILURES else 0


# Only in Django has a request a thread of its own. Otherwise all connections would be looked up in one
# thread, and each would wait for all before it while a server hangs; a thread for each could be a thousand.
_THREADS = ThreadPoolExecutor(8, "connections")


def run_in_thread(function: Callable[..., Any]) -> Any:
    """Wrap a function, which may use the database, as a coroutine.

    Its broken database connections are closed, which Django only does in its own threads.
    """
    return database_sync_to_async(function, thread_sensitive=False, executor=_THREADS)


def authenticate_connection(session_key: str | None, authorization: str | None, address: str | None = None) -> Actor:
    """Return the actor by token if given, else by session; None for a wrong token, or after too many wrong ones."""
    if authorization is None:
        return get_session_actor(session_key, address)
    try:
        return authenticate_token(parse_bearer_secret(authorization), timezone.now(), address) or NOBODY
    except TooManyFailures:
        return NOBODY
