"""Fixtures of the workers' tests."""

from collections.abc import Iterator

import pytest
from celery import Celery, current_app

from tests.servers import Server


@pytest.fixture
def broker(control_server: Server) -> Iterator[str]:
    """The current application is like the console's, on the test's control server; gives the URL."""
    before = current_app._get_current_object()
    application = Celery("weir")
    application.config_from_object("django.conf:settings", namespace="CELERY")
    application.set_current()
    yield control_server.url
    application.close()
    before.set_current()
