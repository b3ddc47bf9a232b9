"""What is counted of a folder whose files come and go."""

import os
from datetime import UTC, datetime

from workers.batch import files


def test_a_folder_takes_what_its_files_take_and_one_that_is_not_there_nothing(tmp_path):
    for name, size_bytes in (("a", 3), ("below/b", 4)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(size_bytes))
    assert files.sum_folder_bytes(tmp_path) == 7
    assert files.sum_folder_bytes(tmp_path / "gone") == 0


def test_a_file_is_old_by_when_it_was_written_and_one_that_is_gone_is_not_there(tmp_path):
    old, new, gone = (tmp_path / name for name in ("old", "new", "gone"))
    for path, seconds in ((old, 99), (new, 100)):
        path.touch()
        os.utime(path, (seconds, seconds))
    before = datetime.fromtimestamp(100, UTC)
    assert files.list_files_written_before(before, [gone, old, new]) == [old]
