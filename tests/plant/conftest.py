"""One whole plant for all acceptance tests, started as a stranger starts it; and one open browser page."""

import pytest

from bench.console.browser import EXECUTABLE, MISSING, chromium
from bench.console.page import sign_in
from bench.plant.running_plant import RunningPlant


@pytest.fixture(scope="package")
def plant():
    with RunningPlant() as running:
        yield running


@pytest.fixture(scope="package")
def browser():
    """One for all: a second of the same process can't be driven beside it."""
    if EXECUTABLE is None:
        pytest.skip(MISSING)
    with chromium() as started:
        yield started


@pytest.fixture(scope="package")
def shared_page(plant, browser):
    """A page that stays open over all tests, signed in as the administrator."""
    page = browser.new_page()
    sign_in(page, plant)
    return page
