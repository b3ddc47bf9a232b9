"""The launcher changes the environment of its process, which the tests share with all others."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _the_environment_stays_as_it_was() -> Iterator[None]:
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
