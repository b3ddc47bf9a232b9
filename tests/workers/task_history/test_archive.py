"""The archive: old days are files, found like before, whatever interrupts the move."""

from contextlib import nullcontext

import pytest

from tests.workers.task_history.samples import NOON, begin_recorder, make_life
from workers.task_history import archive, archived, search
from workers.task_history.blocks import name_day, seal_settled
from workers.task_history.models import TaskBlock
from workers.task_history.query import parse_query
from workers.task_history.record import STARTED, TaskUpdate

pytestmark = pytest.mark.django_db
DAY = name_day(NOON)
LATER = NOON + 3 * 86_400


@pytest.fixture
def data(settings, tmp_path):
    settings.WEIR_DATA = tmp_path
    return tmp_path


def store(count=30, plant="shop", first=0):
    recorder = begin_recorder(plant)
    for number in range(first, first + count):
        for update in make_life(number, NOON + number / 10):
            recorder.hear(update)
    recorder.flush()
    seal_settled(plant, LATER, partly=True)


def move_into_files():
    return sum(archive.archive_day("shop", DAY, nullcontext))


def list_found(text="name:shop.pay"):
    found = search.find(["shop"], parse_query(text, LATER), limit=1_000)
    return [record.args for record in found.records]


def list_files():
    return sorted(path.name for path in archived.get_root().rglob("*") if path.is_file())


def test_an_archived_day_is_found_like_before(data):
    store()
    store(first=100)
    before = list_found(), list_found("customer7"), list_found('"mer10"')
    assert before[1] == ["(7,)"]
    assert archive.list_stored_days(DAY) == [("shop", DAY)]
    assert move_into_files() == 60
    assert (list_found(), list_found("customer7"), list_found('"mer10"')) == before
    assert set(TaskBlock.objects.values_list("data", "filter")) == {(None, None)}
    assert archive.list_stored_days(DAY) == []
    assert len(list_files()) == 2


@pytest.mark.parametrize("step", ["_write_files", "_check_files", "guard"])
def test_a_move_that_is_interrupted_leaves_everything_findable_and_is_completed_later(data, monkeypatch, step):
    store()
    before = list_found()

    def crash(*_):
        raise KeyboardInterrupt

    guard = nullcontext
    if step == "_write_files":
        monkeypatch.setattr(archive.os, "fsync", crash)
    elif step == "guard":
        guard = crash
    else:
        monkeypatch.setattr(archive, step, crash)
    with pytest.raises(KeyboardInterrupt):
        list(archive.archive_day("shop", DAY, guard))
    assert list_found() == before
    monkeypatch.undo()
    store(first=40)  # the next attempt has more blocks than the first one
    move_into_files()
    assert list_found() == [f"({number},)" for number in (*range(69, 39, -1), *range(29, -1, -1))]
    assert len(list_files()) == 2


def test_a_file_that_differs_from_what_was_written_stays_in_the_database(data, monkeypatch):
    store()
    read = archived.read_row_group
    monkeypatch.setattr(archived, "read_row_group", lambda *place: read(*place).slice(1))
    with pytest.raises(archive.ArchiveNotReadable, match="Check the disk"):
        move_into_files()
    monkeypatch.undo()
    assert TaskBlock.objects.get().file == ""
    assert len(list_found()) == 30


def test_a_deleted_day_is_gone_with_its_files(data):
    store()
    move_into_files()
    assert archive.list_archived_days(DAY) == [("shop", DAY)]
    assert archive.delete_day("shop", DAY, nullcontext, lambda: True) == 0
    assert archive.delete_day("shop", DAY, nullcontext, lambda: False) == 1
    assert list_found() == []
    assert not archived.get_root().joinpath("plant=shop").exists()


def test_files_without_blocks_are_deleted_with_their_day(data):
    store()
    move_into_files()
    TaskBlock.objects.all().delete()
    assert archive.list_archived_days(DAY) == [("shop", DAY)]
    archive.delete_day("shop", DAY, nullcontext, lambda: False)
    assert list_files() == []


def test_a_task_that_continues_after_its_day_was_archived_is_found_once(data):
    store()
    move_into_files()
    recorder = begin_recorder()
    [task] = search.find(["shop"], parse_query("customer7", LATER)).records
    recorder.connect(LATER)
    recorder.hear(TaskUpdate(id=task.id, state=STARTED, at=LATER, time=LATER, worker="w2@shop"))
    recorder.flush()
    [again] = search.find(["shop"], parse_query("customer7", LATER)).records
    assert (again.state, again.worker, again.args) == ("started", "w2@shop", "(7,)")
    assert len(list_found()) == 30


def test_a_missing_file_hides_its_tasks_and_nothing_else(data):
    store()
    move_into_files()
    store(first=50)
    for path in archived.get_root().rglob("*.parquet"):
        path.unlink()
    assert len(list_found()) == 30
