"""Two executors on separate hosts: they do nearly twice the work of one, and the loss of one pauses results briefly."""

import pytest

from bench.pipeline.executor_hosts import explain_missing
from bench.pipeline.executors import run
from console.management.commands.bench import describe_exceeded_limits

pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.spark,
    pytest.mark.alone,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(explain_missing()), reason=explain_missing()),
]
SECONDS = 6.0


def test_two_executors_do_nearly_twice_the_work_and_the_loss_of_one_loses_no_result():
    measured = {"name": "executors", **run(SECONDS)}
    assert list(describe_exceeded_limits(measured)) == [], measured["figures"]
