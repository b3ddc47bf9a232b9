"""The page of what grows names every key and every table, each once and in its place."""

import re

from django.apps import apps

from console.audit import witness
from console.release import ROOT
from queues import keys
from workers.batch import files
from workers.history import event_archive, snapshot_archive

PAGE = (ROOT / "docs" / "operate" / "growth.md").read_text()
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", re.M)


def listed(title: str) -> list[str]:
    part = re.split(r"^## ", PAGE.split(f"## {title}\n", 1)[1], maxsplit=1, flags=re.M)[0]
    return [name for name, _, _ in ROW.findall(part)]


def test_every_key_is_named_with_its_bound_on_the_server_that_it_is_on():
    known = [key for key in vars(keys).values() if isinstance(key, keys.Key)]
    assert sorted(listed("On the control server")) == sorted(key for key in known if not key.on_nodes)
    assert sorted(listed("On a node")) == sorted(key for key in known if key.on_nodes)


def test_every_table_is_named_with_its_bound():
    assert sorted(listed("In the database")) == sorted(model._meta.label for model in apps.get_models())


def test_every_folder_that_jobs_and_the_lab_write_is_named_with_its_bound():
    written = {*files.OUTPUT_ROOTS, event_archive.TRACES, event_archive.ROOT, snapshot_archive.ROOT}
    named = set(listed("In the data folder"))
    assert {f"{name}/" for name in written} | {witness.FILE} <= named


def test_every_row_says_what_it_grows_with_and_what_bounds_it():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(rows) == len(ROW.findall(PAGE)) > 100  # keys, tables and folders
