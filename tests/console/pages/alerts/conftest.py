"""An operator's browser, and an alert that is open."""

import pytest

from tests.console.pages.alerts.checks import look
from tests.workers.alerts.checks import rule, the_alert


@pytest.fixture
def alert(db, stored_snapshot):
    """A lost node, seen just now by the real evaluator."""
    rule()
    look()
    return the_alert()
