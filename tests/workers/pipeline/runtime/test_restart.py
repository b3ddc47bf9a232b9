"""A data folder goes with the state on the control server, or not at all."""

import json
import resource
import shutil
from contextlib import contextmanager

import pytest
import redis

from common.errors import BadInput, WeirError
from queues.nodes.server import free_port
from workers.pipeline.dispatch.assignment import Dispatches
from workers.pipeline.dispatch.cursor import Cursor
from workers.pipeline.dispatch.result_queue import ResultQueue
from workers.pipeline.runtime.restart import (
    CheckpointInUse,
    explain_missing,
    is_current,
    lock_checkpoint,
    open_checkpoint,
    open_replica_checkpoint,
    reset_checkpoint,
)
from workers.pipeline.tiers.batch_work import COMBINER
from workers.pipeline.tiers.combining import CombinedOffset
from workers.pipeline.tiers.planned_batches import PlannedBatch, PlannedBatches


def planned(folder, batch: int, text: str, is_done: bool = False) -> None:
    """A plan in Spark's checkpoint, as earlier versions of Weir had it."""
    own = folder / "spark" / COMBINER
    for name in ("offsets", "commits"):
        (own / name).mkdir(parents=True, exist_ok=True)
    (own / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{text}")
    if is_done:
        (own / "commits" / str(batch)).touch()


def test_a_checkpoint_of_another_plant_is_refused_with_what_to_do(tmp_path, control):
    open_checkpoint(tmp_path / "p", control, "app")
    control.set("weir:pipeline:run:app", "00000000")
    with pytest.raises(BadInput, match=r"state of run 00000000.*--reset"):
        open_checkpoint(tmp_path / "p", control, "app")


def test_a_checkpoint_without_its_state_and_a_state_without_its_checkpoint_are_refused(tmp_path, control):
    planned(open_checkpoint(tmp_path / "p", control, "app").folder, 0, json.dumps(CombinedOffset().to_document()))
    with pytest.raises(BadInput, match="belongs to run none"):
        open_checkpoint(tmp_path / "elsewhere", control, "app")
    control.delete("weir:pipeline:run:app")
    with pytest.raises(BadInput, match="has no state"):
        open_checkpoint(tmp_path / "p", control, "app")


def test_the_process_of_a_replica_joins_the_run_of_the_main_process_and_notices_a_reset(tmp_path, control):
    with pytest.raises(WeirError, match="has not started app"):
        open_replica_checkpoint(tmp_path / "r", control, "app")
    open_checkpoint(tmp_path / "p", control, "app")
    own = open_replica_checkpoint(tmp_path / "r", control, "app")
    assert is_current(own, control, "app")
    reset_checkpoint(tmp_path / "p", control, "app")
    assert not is_current(own, control, "app")
    open_checkpoint(tmp_path / "p", control, "app")
    assert not is_current(own, control, "app")


def test_the_process_of_a_replica_starts_from_the_control_server_and_not_from_old_files(tmp_path, control):
    planned(open_checkpoint(tmp_path / "p", control, "app").folder, 0, "{}")
    shutil.copytree(tmp_path / "p", tmp_path / "r")
    open_replica_checkpoint(tmp_path / "r", control, "app")
    assert not (tmp_path / "r" / "spark").exists()


@contextmanager
def full_disk():
    """No file of this process takes a byte."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_first_start_on_a_full_disk_is_made_again_when_there_is_room(tmp_path, control):
    """It left a file without a run, and a run on the server: each start after it was refused until a person
    had reset it.
    """
    with full_disk(), pytest.raises(OSError, match="File too large"):
        open_checkpoint(tmp_path / "p", control, "app")
    first = open_checkpoint(tmp_path / "p", control, "app")
    assert open_checkpoint(tmp_path / "p", control, "app") == first


def test_a_first_start_that_died_before_the_control_server_knew_is_made_again(tmp_path, control, monkeypatch):
    def die(*arguments):
        raise redis.ConnectionError

    with monkeypatch.context() as patch, pytest.raises(redis.ConnectionError):
        patch.setattr(redis.Redis, "set", die)
        open_checkpoint(tmp_path / "p", control, "app")
    first = open_checkpoint(tmp_path / "p", control, "app")
    assert open_checkpoint(tmp_path / "p", control, "app") == first


def test_a_run_that_has_dispatched_is_not_begun_anew_without_its_state(tmp_path, control):
    open_checkpoint(tmp_path / "p", control, "app")
    Dispatches(control, "app").commit(Cursor(), Cursor(tick=1), {})
    control.delete("weir:pipeline:run:app")
    with pytest.raises(BadInput, match="has no state"):
        open_checkpoint(tmp_path / "p", control, "app")


def test_after_a_reset_another_run_begins(tmp_path, control):
    first = open_checkpoint(tmp_path / "p", control, "app")
    planned(first.folder, 0, "broken")
    reset_checkpoint(tmp_path / "p", control, "app")
    assert open_checkpoint(tmp_path / "p", control, "app").run != first.run


def test_a_reset_that_died_in_the_middle_is_asked_for_once_more(tmp_path, control, monkeypatch):
    """Gone on with, it would count from the beginning what was worked, and take away what was not."""
    planned(open_checkpoint(tmp_path / "p", control, "app").folder, 0, json.dumps(CombinedOffset().to_document()))

    def die(results):
        raise redis.ConnectionError

    with monkeypatch.context() as patch, pytest.raises(redis.ConnectionError):
        patch.setattr(ResultQueue, "clear", die)
        reset_checkpoint(tmp_path / "p", control, "app")
    with pytest.raises(BadInput, match="--reset"):
        open_checkpoint(tmp_path / "p", control, "app")
    reset_checkpoint(tmp_path / "p", control, "app")
    assert open_checkpoint(tmp_path / "p", control, "app").run


@pytest.mark.parametrize("is_done", [False, True])
def test_a_start_continues_from_the_plan_of_an_earlier_version(is_done, tmp_path, control):
    checkpoint = open_checkpoint(tmp_path / "p", control, "app")
    offset = CombinedOffset(taken="7-0", watermark_us=5)
    planned(checkpoint.folder, 3, json.dumps(CombinedOffset().to_document()), is_done=True)
    planned(checkpoint.folder, 10, json.dumps(offset.to_document()), is_done)
    open_checkpoint(tmp_path / "p", control, "app")
    assert PlannedBatches(control, "app").load() == PlannedBatch(10, offset, is_done)


def test_the_plan_on_the_control_server_is_newer_than_any_in_a_file(tmp_path, control):
    checkpoint = open_checkpoint(tmp_path / "p", control, "app")
    newest = PlannedBatch(12, CombinedOffset(taken="9-0"))
    PlannedBatches(control, "app").restore(newest)
    planned(checkpoint.folder, 3, json.dumps(CombinedOffset().to_document()))
    open_checkpoint(tmp_path / "p", control, "app")
    assert PlannedBatches(control, "app").load() == newest


def test_a_process_that_was_killed_before_its_first_plan_starts_again(tmp_path, control):
    checkpoint = open_checkpoint(tmp_path / "p", control, "app")
    planned(checkpoint.folder, 1, json.dumps({"batch": 1}))
    assert open_checkpoint(tmp_path / "p", control, "app") == checkpoint
    assert PlannedBatches(control, "app").load() is None


def test_a_start_deletes_the_files_of_the_previous_session(tmp_path, control):
    checkpoint = open_checkpoint(tmp_path / "p", control, "app")
    planned(checkpoint.folder, 3, json.dumps(CombinedOffset().to_document()))
    open_checkpoint(tmp_path / "p", control, "app")
    assert not (checkpoint.folder / "spark").exists()


@pytest.mark.parametrize("text", ["", "{", json.dumps({**CombinedOffset().to_document(), "version": 99})])
def test_a_broken_or_newer_plan_is_refused_before_anything_is_read(text, tmp_path, control):
    checkpoint = open_checkpoint(tmp_path / "p", control, "app")
    planned(checkpoint.folder, 4, text)
    with pytest.raises(BadInput, match="--reset"):
        open_checkpoint(tmp_path / "p", control, "app")


def test_a_broken_run_file_is_refused_with_its_path(tmp_path, control):
    checkpoint = open_checkpoint(tmp_path / "p", control, "app")
    (checkpoint.folder / "run.json").write_text("{")
    with pytest.raises(BadInput, match=r"run\.json"):
        open_checkpoint(tmp_path / "p", control, "app")


def test_two_processes_never_work_on_one_checkpoint(tmp_path):
    with lock_checkpoint(tmp_path), pytest.raises(CheckpointInUse, match="Stop that process first"):
        lock_checkpoint(tmp_path)
    lock_checkpoint(tmp_path).close()


def test_a_start_lacks_a_control_server_that_is_away_and_a_folder_that_takes_no_files(tmp_path, control):
    assert explain_missing(tmp_path, control) == ""
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert "can't be written" in explain_missing(tmp_path / "file", control)
    with redis.Redis(port=free_port(), retry=None) as away:
        assert "is not responding" in explain_missing(tmp_path, away)
