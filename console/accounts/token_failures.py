"""Wrong API tokens are counted per address: above MAX_FAILURES within WINDOW_SECONDS they are answered 429.

A valid token is never rejected because of others at its address.
"""

import logging
from datetime import datetime

import redis

from console.accounts.access import Actor, find_token_actor
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
        super().__init__(f"More than {MAX_FAILURES} invalid tokens came from your address; try again in {seconds} s.")
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
