"""This process's producer: one client for all requests, created by the first one."""

import atexit
import functools

from django.conf import settings

from queues.publishing.client import Client

PRODUCER = "api"


def get_publisher_client() -> Client:
    """Return the client of settings.REDIS_URL."""
    return _get_client(settings.REDIS_URL)


@functools.lru_cache(maxsize=4)
def _get_client(url: str) -> Client:
    client = Client(url, producer=PRODUCER)
    atexit.register(client.close)
    return client
