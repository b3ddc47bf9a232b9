"""One whole plant for all acceptance tests, started as a stranger starts it; and one open browser page."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from bench.browser import EXECUTABLE, MISSING, chromium
from bench.page import sign_in
from bench.running_plant import RunningPlant


@pytest.fixture(scope="package")
def plant() -> Iterator[RunningPlant]:
    with RunningPlant() as running:
        yield running


@pytest.fixture(scope="package")
def desk(plant: RunningPlant) -> Iterator[Page]:
    """A page that stays open over all tests, signed in as the administrator."""
    if EXECUTABLE is None:
        pytest.skip(MISSING)
    with chromium() as browser:
        page = browser.new_page()
        sign_in(page, plant)
        yield page
