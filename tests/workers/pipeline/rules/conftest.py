"""One Spark session for all tests of rules: to start one takes longer than most of them."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from workers.pipeline.runtime.session import start_session


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_session("rules", "local[1]", tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
