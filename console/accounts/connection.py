"""Who is at the other end of a connection, before Django has a request of it: a websocket's, or a body's."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from channels.db import database_sync_to_async
from django.utils import timezone

from console.accounts import token_failures
from console.accounts.access import NOBODY, Actor, actor_of_session, bearer_of

# A request has a thread of its own only in Django. Without these all connections would be asked about in one
# thread, and each would wait for all before it where a server hangs; a thread each would be a thousand.
_THREADS = ThreadPoolExecutor(8, "connections")


def run_in_thread(function: Callable[..., Any]) -> Any:
    """The function as a coroutine; it may ask the database. A connection of it that broke is not kept, which
    Django sees to in its own threads alone.
    """
    return database_sync_to_async(function, thread_sensitive=False, executor=_THREADS)


def actor_of_connection(
    session_key: str | None, authorization: str | None, address: str | None = None
) -> Actor:
    """By token when one was given, else by session; nobody for a token that is wrong, or one of too many."""
    if authorization is None:
        return actor_of_session(session_key, address)
    try:
        return token_failures.actor_of(bearer_of(authorization), timezone.now(), address) or NOBODY
    except token_failures.TooManyFailures:
        return NOBODY
