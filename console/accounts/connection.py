"""The actor of a connection before Django has a request of it: of a websocket, or of a request body."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from channels.db import database_sync_to_async
from django.utils import timezone

from console.accounts import token_failures
from console.accounts.access import NOBODY, Actor, get_session_actor, parse_bearer_secret

# Only in Django has a request a thread of its own. Otherwise all connections would be looked up in one
# thread, and each would wait for all before it while a server hangs; a thread for each could be a thousand.
_THREADS = ThreadPoolExecutor(8, "connections")


def run_in_thread(function: Callable[..., Any]) -> Any:
    """Wrap a function, which may use the database, as a coroutine.

    Its broken database connections are closed, which Django only does in its own threads.
    """
    return database_sync_to_async(function, thread_sensitive=False, executor=_THREADS)


def authenticate_connection(session_key: str | None, authorization: str | None, address: str | None = None) -> Actor:
    """Return the actor by token if given, else by session.

    Return None for a wrong token, or after too many wrong ones.
    """
    if authorization is None:
        return get_session_actor(session_key, address)
    try:
        return token_failures.authenticate_token(parse_bearer_secret(authorization), timezone.now(), address) or NOBODY
    except token_failures.TooManyFailures:
        return NOBODY
