"""The maximum size of a body by its address and sender, determined before it is read."""

import re
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError
from django.http import parse_cookie

from console.accounts.access import Actor
from console.accounts.connection import authenticate_connection, run_in_thread
from console.accounts.quotas import get_actor_quota
from console.actions.lab.traces import MAX_TRACE_BYTES
from console.api.ingestion.body_limit import STRANGER_BYTES, UNANSWERED, Allowance
from console.input.boundary import MAX_REPORT_BYTES, is_report
from console.web.refusal import RequestRefused

DOCUMENT_BYTES = 2**20  # a form, or the JSON of a declaration
EVENTS = re.compile(r"/api/v1/queues/([^/]+)/events/?")
UPLOADS = "/lab/begin"


async def load_allowance(scope: dict[str, Any]) -> Allowance:
    """Return how much the sender of a request may send to its address.

    Raises `RequestRefused` if it can't be determined.
    """
    allowance: Allowance = await run_in_thread(_compute_allowance)(scope)
    return allowance


def _compute_allowance(scope: dict[str, Any]) -> Allowance:
    try:
        actor = _get_sender_actor(scope)
        return Allowance(_compute_max_bytes(actor, scope), actor.name) if actor.role else Allowance(STRANGER_BYTES)
    except (DatabaseError, redis.RedisError):
        raise RequestRefused(503, UNANSWERED, 2) from None


def _get_sender_actor(scope: dict[str, Any]) -> Actor:
    headers = {name.decode("latin1"): value.decode("latin1") for name, value in scope["headers"]}
    session_key = parse_cookie(headers.get("cookie", "")).get(settings.SESSION_COOKIE_NAME)
    return authenticate_connection(session_key, headers.get("authorization"), (scope.get("client") or [None])[0])


def _compute_max_bytes(actor: Actor, scope: dict[str, Any]) -> int:
    path, posts = scope.get("path", ""), scope.get("method") == "POST"
    queue = EVENTS.fullmatch(path)
    if posts and queue and actor.may("events.publish") and actor.can_access_queues([queue[1]]):
        if seconds := get_actor_quota(actor).wait_seconds(0):
            raise RequestRefused(429, f"The quota of {actor.name} is used up; send again in {seconds} s.", seconds)
        return int(settings.WEIR_MAX_BODY_BYTES)
    if actor.role == "producer":
        return STRANGER_BYTES
    if posts and is_report(path) and actor.may("alert.report"):
        return MAX_REPORT_BYTES
    if posts and path == UPLOADS and actor.may("lab.run"):
        return DOCUMENT_BYTES + MAX_TRACE_BYTES
    return DOCUMENT_BYTES
