"""All connections to the control server, for each form of its address.

A client of a replicated control server queries the sentinels for the primary whenever it connects, so it follows a
failover automatically. Commands during the failover fail like any command to an unavailable server.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

from queues.control.acknowledged import AcknowledgedClient
from queues.control.address import Sentinels, parse_sentinels
from queues.control.refused import know_of_refused_writes

know_of_refused_writes()
# redis-py types neither.
SYNCHRONOUS: Any = redis.sentinel.Sentinel
ASYNCHRONOUS: Any = redis.asyncio.sentinel.Sentinel


def connect(url: str, *, acknowledged: bool = True, **options: Any) -> redis.Redis:
    """Return a client that connects on first use; `options` are redis-py's.

    acknowledged: replies to writes mean that a replica has them, if there are replicas. Pass False for values that are
    only the newest of their kind and are sent again. Raises `BadInput` that names REDIS_URL.
    """
    sentinels = parse_sentinels(url)
    if sentinels is None:
        return redis.Redis.from_url(url, **options)
    sentinel = SYNCHRONOUS(
        sentinels.hosts, sentinel_kwargs=sentinels.sentinel_options, **_build_server_options(sentinels, options)
    )
    made = sentinel.master_for(sentinels.name, redis_class=AcknowledgedClient if acknowledged else redis.Redis)
    return cast(redis.Redis, made)


@asynccontextmanager
async def open_connection(url: str, **options: Any) -> AsyncIterator[redis.asyncio.Redis]:
    """Return an asynchronous client for reading and listening. Raises `BadInput` that names REDIS_URL."""
    sentinels = parse_sentinels(url)
    if sentinels is None:
        async with redis.asyncio.Redis.from_url(url, **options) as client:
            yield client
        return
    async with (
        ASYNCHRONOUS(
            sentinels.hosts, sentinel_kwargs=sentinels.sentinel_options, **_build_server_options(sentinels, options)
        ) as sentinel,
        sentinel.master_for(sentinels.name) as client,
    ):
        yield client


def _build_server_options(found: Sentinels, options: dict[str, Any]) -> dict[str, Any]:
    return {"db": found.database, **found.login, **options}
