"""One whole plant for all acceptance tests: started as a stranger starts it."""

from collections.abc import Iterator

import pytest

from bench.running_plant import RunningPlant


@pytest.fixture(scope="session")
def plant() -> Iterator[RunningPlant]:
    with RunningPlant() as running:
        yield running
