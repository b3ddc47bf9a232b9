"""The archive of snapshots: any instant comes back whole, whatever died while it was written."""

import resource

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.snapshot.test_observer import Scripted
from workers.documents.snapshot import Snapshot
from workers.history import snapshot_archive
from workers.history.snapshot_archive import (
    BLOCK_BUDGET_BYTES,
    Recorder,
    compute_step_seconds,
    find_nearest_times,
    snapshot_at,
)
from workers.snapshot.observer import Observer

START = 1_790_000_000.2  # 10:13:20.2 of a day in UTC


def keep(recorder: Recorder, first: float, count: int, step: float = 1.0, size: int = 0) -> list[float]:
    """A snapshot each `step` seconds from `first`; gives their times."""
    times = [first + step * number for number in range(count)]
    for at in times:
        recorder.add(at, snapshot_text(at, size))
    return times


def snapshot_text(at: float, size: int = 0) -> bytes:
    ballast = "".join(f"{hash((at, place)):x}" for place in range(size // 15))
    return orjson.dumps({"at": at, "unknown": None, "queues": {"alert": {"waiting_events": int(at % 7)}}, "b": ballast})


def test_every_instant_comes_back_as_it_was_with_what_was_unknown(tmp_path):
    times = keep(Recorder(tmp_path), START, 200)
    for at in times:
        assert snapshot_at(tmp_path, at + 0.4) == Snapshot.from_json(snapshot_text(at))


@given(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=60), st.floats(-10, 400))
def test_an_instant_is_the_newest_frame_before_it(tmp_path_factory, steps, offset):
    data = tmp_path_factory.mktemp("data")
    recorder, at, kept = Recorder(data), START, []
    for step in steps:
        at = round(at + step, 3)
        if not kept or at - kept[-1] >= 0.5:
            kept.append(at)
        recorder.add(at, snapshot_text(at))
    asked = round(START + offset, 3)
    before = [each for each in kept if each <= asked and asked - each <= snapshot_archive.REACH_SECONDS]
    found = snapshot_at(data, asked)
    assert (found and found.at) == (before[-1] if before else None)


def test_what_is_not_kept_is_none_and_its_neighbours_are_named(tmp_path):
    assert snapshot_at(tmp_path, START) is None
    assert find_nearest_times(tmp_path, START) == (None, None)
    keep(Recorder(tmp_path), START, 5)
    later = START + 3_600
    keep(Recorder(tmp_path), later, 5)
    assert snapshot_at(tmp_path, START - 1) is None
    assert snapshot_at(tmp_path, START + 1_800) is None
    assert find_nearest_times(tmp_path, START + 1_800) == (START, later)


@pytest.mark.parametrize("torn", [1, 5, 40])
def test_the_next_recorder_seals_what_a_killed_one_left_without_its_torn_line(tmp_path, torn):
    times = keep(Recorder(tmp_path), START, 3)
    (left,) = (tmp_path / "snapshots").glob("open-*.jsonl")
    left.write_bytes(left.read_bytes()[:-torn])
    assert snapshot_at(tmp_path, times[2]).at == times[1]
    keep(Recorder(tmp_path), START + 120, 1)
    assert not left.exists()
    assert snapshot_at(tmp_path, times[2]).at == times[1]


def test_a_block_sealed_twice_is_one_block(tmp_path):
    times = keep(Recorder(tmp_path), START, 3)
    root = tmp_path / "snapshots"
    (left,) = root.glob("open-*.jsonl")
    kept = left.read_bytes()
    snapshot_archive.seal(root, left)
    left.write_bytes(kept)  # killed between the block's rename and this file's end
    snapshot_archive.seal(root, left)
    assert len(list(root.glob("day=*/*"))) == 1
    assert snapshot_at(tmp_path, times[2]).at == times[2]


def test_a_large_plant_is_kept_less_often_until_a_minute_fits_its_budget(tmp_path):
    size = BLOCK_BUDGET_BYTES // 10  # of noise, which no compression helps
    keep(Recorder(tmp_path), START, 600, size=size)
    blocks = sorted((tmp_path / "snapshots").glob("day=*/*"))
    sizes = [block.stat().st_size for block in blocks]
    assert sizes[0] > 2 * BLOCK_BUDGET_BYTES
    assert max(sizes[-3:]) < 1.3 * BLOCK_BUDGET_BYTES
    assert snapshot_at(tmp_path, START + 590) is not None


@given(st.integers(1, 60), st.integers(0, 10**9))
def test_the_step_stays_between_a_second_and_a_minute(step, size):
    assert 1 <= compute_step_seconds(step, size) <= 60
    assert compute_step_seconds(step, BLOCK_BUDGET_BYTES) == step


def test_the_observer_keeps_what_it_publishes(control, tmp_path):
    observer = Observer(control, Scripted(), recorder=Recorder(tmp_path))
    published = [observer.step() for _ in range(3)]
    assert [snapshot_at(tmp_path, each.at) for each in published] == published


def test_a_frame_for_which_there_was_room_in_part_spoils_none_after_it(tmp_path):
    recorder = Recorder(tmp_path)
    recorder.add(START, snapshot_text(START))
    (left,) = (tmp_path / "snapshots").glob("open-*.jsonl")
    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left.stat().st_size + 30, hard))
    try:
        with pytest.raises(OSError, match="No space"):
            recorder.add(START + 1, snapshot_text(START + 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    recorder.add(START + 2, snapshot_text(START + 2))
    assert snapshot_at(tmp_path, START + 1).at == START
    assert snapshot_at(tmp_path, START + 2).at == START + 2
