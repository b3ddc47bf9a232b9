"""Every connection to the control server is made here, whatever form its address has.

A client of a replicated control server asks the sentinels for the primary whenever it connects, so it follows
a fail-over by itself; what it was at meanwhile fails like any command to a server that is away.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

from queues.control.acknowledged import AcknowledgedClient
from queues.control.address import Sentinels, sentinels_of
from queues.control.refused import know_of_refused_writes

know_of_refused_writes()
# redis-py types neither.
SYNCHRONOUS: Any = redis.sentinel.Sentinel
ASYNCHRONOUS: Any = redis.asyncio.sentinel.Sentinel


def connect(url: str, *, acknowledged: bool = True, **options: Any) -> redis.Redis:
    """A client that connects on first use; `options` are redis-py's.

    Answers to writes mean that a replica has them, where there are any; not `acknowledged`, for what is only
    the newest of its kind and comes again. Raises BadInput naming REDIS_URL.
    """
    sentinels = sentinels_of(url)
    if sentinels is None:
        return redis.Redis.from_url(url, **options)
    sentinel = SYNCHRONOUS(
        sentinels.hosts,
        sentinel_kwargs=sentinels.sentinel_options,
        **_build_server_options(sentinels, options),
    )
    made = sentinel.master_for(
        sentinels.name, redis_class=AcknowledgedClient if acknowledged else redis.Redis
    )
    return cast(redis.Redis, made)


@asynccontextmanager
async def open_connection(url: str, **options: Any) -> AsyncIterator[redis.asyncio.Redis]:
    """An asynchronous client, for what reads and listens. Raises BadInput naming REDIS_URL."""
    found = sentinels_of(url)
    if found is None:
        async with redis.asyncio.Redis.from_url(url, **options) as client:
            yield client
        return
    async with (
        ASYNCHRONOUS(
            found.hosts, sentinel_kwargs=found.sentinel_options, **_build_server_options(found, options)
        ) as sentinel,
        sentinel.master_for(found.name) as client,
    ):
        yield client


def _build_server_options(found: Sentinels, options: dict[str, Any]) -> dict[str, Any]:
    return {"db": found.database, **found.login, **options}
