"""The session of a process starts in the background, once, and a start that failed is tried again."""

import logging
import threading
from types import SimpleNamespace

import pytest

from common.errors import BadInput, WeirError
from tests.waiting import until
from tests.workers.pipeline.times import Times
from workers.pipeline.runtime.spark_session import RETRY_SECONDS, SparkOnDemand


class Starts:
    """Starts sessions, or fails with `error`, when the test lets it."""

    def __init__(self) -> None:
        self.count, self.error = 0, None
        self.may_go_on = threading.Event()
        jobs = SimpleNamespace(mapPartitions=lambda _: jobs, collect=list)
        self.session = SimpleNamespace(sparkContext=SimpleNamespace(parallelize=lambda *_: jobs))

    def __call__(self):
        self.count += 1
        assert self.may_go_on.wait(10)
        if self.error is not None:
            raise self.error
        return self.session


@pytest.fixture
def starts():
    return Starts()


@pytest.fixture
def times():
    return Times()


@pytest.fixture
def session(starts, times):
    return SparkOnDemand(starts, times)


def test_it_starts_once_while_applications_run_without_it(session, starts):
    assert session.explain_place() == "Spark starts above 2,000 events/s"
    for _ in range(3):
        session.request("2,200 events/s exceed 2,000 events/s")
    assert session.spark is None
    assert session.explain_place() == "Spark is starting because 2,200 events/s exceed 2,000 events/s"
    starts.may_go_on.set()
    until(lambda: session.spark is starts.session)
    session.request("another reason")
    assert starts.count == 1
    assert session.explain_place() == "2,200 events/s exceed 2,000 events/s"


def fail(session, starts, error: Exception) -> None:
    starts.error = error
    starts.may_go_on.set()
    session.request("2 tasks are set for an operator")
    until(lambda: session.reason is None)


def test_a_start_that_failed_is_tried_again_after_a_minute(session, starts, times, caplog):
    with caplog.at_level(logging.ERROR):
        fail(session, starts, OSError("no memory"))
    assert "Spark failed to start (no memory)" in caplog.text
    session.request("2 tasks are set for an operator")
    assert starts.count == 1
    assert session.explain_place() == "Spark starts above 2,000 events/s"
    times.now += RETRY_SECONDS
    starts.error = None
    session.request("2 tasks are set for an operator")
    until(lambda: session.spark is starts.session)


@pytest.mark.parametrize("error", [BadInput("WEIR_SPARK_SECRET", "must have 32 characters"), ValueError("unknown")])
def test_the_error_of_a_start_is_raised_to_what_cannot_run_without_it(session, starts, error):
    fail(session, starts, error)
    with pytest.raises(WeirError, match=r"must have 32|Spark failed to start \(unknown\)"):
        session.request("the declaration sets engine: spark", is_essential=True)
