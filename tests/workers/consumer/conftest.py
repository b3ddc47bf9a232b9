"""Fixtures of the consumers' tests."""

import pytest

from tests.workers.celery_worker import CeleryWorker


@pytest.fixture
def host(control, broker, tmp_path):
    """A worker host that the test starts."""
    worker = CeleryWorker(control, broker, tmp_path)
    yield worker
    worker.close()
