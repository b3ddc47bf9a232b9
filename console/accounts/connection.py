"""Who is at the other end of a connection, before Django has a request of it: a websocket's, or a body's."""

from django.utils import timezone

from console.accounts import token_failures
from console.accounts.access import NOBODY, Actor, actor_of_session, bearer_of


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
