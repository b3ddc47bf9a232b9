"""One Spark session for all tests of rules: to start one takes longer than most of them."""

import pytest

from workers.pipeline.runtime.session import start_session


@pytest.fixture(scope="package")
def spark(tmp_path_factory):
    session = start_session("rules", "local[1]", tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
