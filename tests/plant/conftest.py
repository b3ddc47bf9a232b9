"""One whole plant for all acceptance tests, started as a stranger starts it; and one open browser page."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, sync_playwright

from bench.page import CHROMIUM_ARGUMENTS, sign_in
from bench.running_plant import RunningPlant


@pytest.fixture(scope="package")
def plant() -> Iterator[RunningPlant]:
    with RunningPlant() as running:
        yield running


@pytest.fixture(scope="package")
def desk(plant: RunningPlant) -> Iterator[Page]:
    """A page that stays open over all tests, signed in as the administrator."""
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("Chromium is not installed; apt-get install chromium brings it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_ARGUMENTS)
        page = browser.new_page()
        sign_in(page, plant)
        yield page
        browser.close()
