"""Whether an application gets on: judged by what was finished last, never by who is there."""

import pytest

from workers.pipeline.status.progress import ChainStep, ProgressInputs, ProgressRecord, stall
from workers.pipeline.tiers.finished_batch import ReplicaBatch


@pytest.mark.parametrize(
    ("seconds", "batch_seconds", "stalled"),
    [(14.0, 0.2, False), (16.0, 0.2, True), (40.0, 20.0, False), (61.0, 20.0, True)],
)
def test_a_worker_is_measured_by_its_own_last_batch(seconds, batch_seconds, stalled):
    step = ChainStep("replica iap1", seconds, batch_seconds)
    assert step.is_stalled is stalled
    assert (stall(ProgressInputs((step,))) is not None) is stalled


def test_the_first_batch_has_time_for_compiling():
    assert stall(ProgressInputs((ChainStep("replica iap1", 50.0, None),))) is None
    slow = ProgressInputs((ChainStep("replica iap1", 70.0, None),))
    assert "first batch" in stall(slow)
    assert slow.stuck_seconds == 0.0, "a new start would only begin it once more"
    assert ProgressInputs((ChainStep("replica iap1", 400.0, None),)).stuck_seconds == 160.0


def test_a_dispatcher_that_does_not_come_back_is_reported_and_is_stuck():
    sight = ProgressInputs(silent_seconds=31.0)
    assert stall(sight) == "the dispatcher has not responded for 31 s"
    assert sight.stuck_seconds == 31.0


def test_a_worker_counts_from_its_piece_its_last_batch_or_the_start_whichever_is_latest():
    record = ProgressRecord(50.0)
    record.record_replica("a", ReplicaBatch(90.0, 0, 1, 1, 0, 0.2, [], 0.2))
    record.record_dispatch(130.0, 0, None, ())
    given = {"a": 60.0, "b": 10.0, "c": 120.0}
    state, stall_reason = record.judge(130.0, given, 1)
    assert (state, stall_reason[:9], stall_reason[-4:]) == ("stalled", "replica b", "80 s")
    assert record.inputs.stuck_seconds == 40.0, "that of replica a, which has worked before"
    record.begin(130.0)
    assert record.judge(131.0, given, 1) == ("starting", None)
    record.inputs = ProgressInputs()
    assert record.inputs.stuck_seconds == 0.0
