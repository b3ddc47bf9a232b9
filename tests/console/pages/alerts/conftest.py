"""An operator's browser, and an alert that is open."""

import pytest
from django.test import Client

from tests.console.pages.alerts.checks import look
from tests.workers.alerts.checks import rule, the_alert
from workers.alerts.lifecycle.models import Alert


@pytest.fixture
def operator(browsers) -> Client:
    return browsers["operator"]


@pytest.fixture
def alert(db, stored_snapshot) -> Alert:
    """A lost node, seen just now by the real evaluator."""
    rule()
    look()
    return the_alert()
