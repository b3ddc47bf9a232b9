"""The Chromium that tests and measurements drive.

The headless shell where the system has it: the same engine without windows, for 0.6 of the processor time.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
EXECUTABLE = next((path for name in NAMES if (path := shutil.which(name))), None)
MISSING = "Chromium is missing; apt-get install chromium-headless-shell brings it."
ARGUMENTS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-sync",
)


@contextmanager
def chromium(*more: str) -> Iterator[Browser]:
    """A browser, closed at the end; more: arguments of its own."""
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=EXECUTABLE, args=[*ARGUMENTS, *more]) as browser,
    ):
        yield browser
