"""What is said of a batch that failed: the cause, not the pages it comes in."""

import pytest

from common.errors import BadInput
from workers.pipeline.tiers.batch_work import BatchFailed, BatchWork, describe_error

PAGES = """An error occurred while calling o325.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 7.0 failed 1 times
Traceback (most recent call last):
  File "worker.py", line 1, in main
{cause}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
Caused by: java.lang.InterruptedException
"""


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("common.errors.BadInput: field: is wrong", "field: is wrong"),
        ("redis.exceptions.TimeoutError: Timeout reading", "redis.exceptions.TimeoutError: Timeout reading"),
        ("KeyError: 'weir:pipeline'", "KeyError: 'weir:pipeline'"),
        ("", "An error occurred while calling o325.collectToPython."),
    ],
)
def test_the_cause_is_found_in_the_pages_of_spark(cause, said):
    assert describe_error(RuntimeError(PAGES.format(cause=cause))) == said


def test_an_error_without_a_word_is_called_by_its_name():
    assert describe_error(RuntimeError()) == "RuntimeError"


def test_spark_is_given_a_sentence_and_what_failed_is_kept_as_it_was():
    class Work(BatchWork):
        def work(self, events, batch):
            raise BadInput("field", "is wrong")

    work = Work()
    with pytest.raises(BatchFailed, match="field: is wrong") as emitted:
        work(None, 3)
    assert emitted.value.__cause__ is None and emitted.value.__suppress_context__
    assert isinstance(work.failure, BadInput)
