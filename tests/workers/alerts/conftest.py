"""Fixtures of the alerts' tests."""

import pytest

from tests.workers.alerts.checks import Looks
from tests.workers.alerts.receiving import hook


@pytest.fixture
def looks(db):
    return Looks()


@pytest.fixture
def posts():
    with hook() as reporter:
        yield reporter
