"""Whoever writes declarations must not read files: neither by a table's name nor by what a refusal quotes."""

import os

import pytest

from common.errors import BadInput
from workers.pipeline.declaration.declaration import build_application, parse_application_text
from workers.pipeline.rules.reference import MAX_BYTES, MAX_ROWS, ReferenceTable, read_reference
from workers.pipeline.runtime.application import SHIPPED

SECRET = "admin hunter2-the-first-login"


def declared(table: object) -> dict:
    enrich = {"table": table, "using": "source", "by": "subnet", "columns": ["host_name"]}
    return {
        "name": "app",
        "queues": ["telemetry"],
        "sink": "alert",
        "rules": [{"name": "r", "enrich": enrich}],
        "patterns": [{"name": "a", "pattern": "SEQ(A)", "key": "source", "within_seconds": 1}],
    }


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "first-login").write_text(SECRET)
    (tmp_path / "secret.csv").write_text(SECRET)
    made = tmp_path / "applications"
    made.mkdir()
    (made / "inner").mkdir()
    (made / "inner" / "t.csv").write_text("subnet,host_name\n")
    (made / ".hidden.csv").write_text(SECRET)
    (made / "application.yaml").write_text(SECRET)
    (made / "link.csv").symlink_to(tmp_path / "first-login")
    (made / "link-inside.csv").symlink_to(made / "inner" / "t.csv")
    (made / "folder.csv").mkdir()
    os.mkfifo(made / "pipe.csv")
    return made


NAMES = (
    "../first-login",
    "../secret.csv",
    "inner/t.csv",
    "./inner/t.csv",
    "/etc/passwd",
    "/proc/self/environ",
    "/dev/stdin",
    ".hidden.csv",
    "..",
    "application.yaml",
    "link.csv",
    "link-inside.csv",
    "folder.csv",
    "pipe.csv",
    "nobody.csv",
    "hosts.csv\n",
    "hosts.csv\x00",
    "..\\secret.csv",
    "a" * 300 + ".csv",
    "\ud800.csv",
)


@pytest.mark.parametrize("name", [*NAMES, "ABSOLUTE"])
def test_a_table_is_a_regular_file_of_the_folder_named_plainly(name, folder):
    name = str(folder.parent / "first-login") if name == "ABSOLUTE" else name
    with pytest.raises(BadInput) as refused:
        build_application(declared(name), folder)
    assert refused.value.field == "rules[0].enrich.table"
    for told in ("hunter2", "root:", str(folder), str(folder.parent)):
        assert told not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"{SECRET},other\n1,2\n",
        f"subnet,host_name\n{SECRET},x\n",
        f"subnet,host_name\n10.0.0.0/8,{SECRET},{SECRET}\n",
        f"subnet,host_name\n10.0.0.0/8,x\n{SECRET},y\n{SECRET},y\n",
        f'subnet,host_name\n"{SECRET}',
        f'subnet,host_name\n"{SECRET}"hunter2,2',
        f"subnet,host_name\n10.0.0.1/8 {SECRET},2\n",
        f"subnet,host_name\n{'hunter2' * 40_000},2\n",
        "hunter2," * 100 + "\n",
    ],
)
def test_a_refused_table_is_not_quoted(text, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(BadInput) as refused:
        build_application(declared("t.csv"), tmp_path)
    assert refused.value.field == "rules[0].enrich.table"
    assert "hunter2" not in str(refused.value)
    assert str(tmp_path) not in str(refused.value)


def test_a_table_that_is_no_utf8_is_not_quoted(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"subnet,host_name\nhunter2\xff,1\n")
    with pytest.raises(BadInput, match="UTF-8") as refused:
        build_application(declared("t.csv"), tmp_path)
    assert "hunter2" not in str(refused.value)


def test_a_table_has_so_many_bytes_and_rows_at_most(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("key,name\n" + "".join(f"{place},x\n" for place in range(MAX_ROWS + 1)))
    with pytest.raises(BadInput, match=f"more than {MAX_ROWS} rows"):
        read_reference(path, "key", ("name",), "table")
    path.write_text("key,name\n1," + "x" * MAX_BYTES)
    with pytest.raises(BadInput, match="larger than 1 MiB"):
        read_reference(path, "key", ("name",), "table")


def test_a_table_that_becomes_a_link_is_not_followed_and_its_error_quotes_nothing(tmp_path):
    path = tmp_path / "owners.csv"
    path.write_text("id,owner\ne0,ann\n")
    table = ReferenceTable.open(path, "id", ("owner",), "rules[0].enrich.table")
    (tmp_path / "secret").write_text(f"id,owner\n{SECRET},{SECRET}\n")
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    table.refresh()
    assert table.current.equal == {"e0": ("ann",)}
    assert table.last_error
    assert "hunter2" not in table.last_error and str(tmp_path) not in table.last_error


def test_a_text_that_is_no_yaml_is_refused_without_the_path_of_a_file(tmp_path):
    with pytest.raises(BadInput) as refused:
        parse_application_text("rules: [", SHIPPED.parent)
    assert str(SHIPPED.parent) not in str(refused.value)
