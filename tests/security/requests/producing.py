"""A producer that posts bodies to queue alert: import the fixture `producer`."""

import pytest
from django.test import Client

from console.api.ingestion import events as publisher

ADDRESS = "/api/v1/queues/alert/events"
LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def producer(secrets, plant_topology):
    """Posts a body with a producer's token."""

    def post(body, content_type=LINES, query="", **headers):
        token = {"HTTP_AUTHORIZATION": f"Bearer {secrets['producer']}"}
        return Client().post(ADDRESS + query, body, content_type=content_type, **token, **headers)

    yield post
    publisher.get_publisher_client().close()
    publisher._get_client.cache_clear()
