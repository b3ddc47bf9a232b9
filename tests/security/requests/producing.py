"""A producer that posts bodies to queue alert: import the fixture `producer`."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from console.api.ingestion import events as publisher

ADDRESS = "/api/v1/queues/alert/events"
LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def producer(secrets, plant_topology) -> Iterator[Callable[..., Any]]:
    """Posts a body with a producer's token."""

    def post(body: bytes, content_type: str = LINES, query: str = "", **headers: str) -> Any:
        token = {"HTTP_AUTHORIZATION": f"Bearer {secrets['producer']}"}
        return Client().post(ADDRESS + query, body, content_type=content_type, **token, **headers)

    yield post
    publisher.get_publisher_client().close()
    publisher._get_client.cache_clear()
