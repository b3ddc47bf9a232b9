"""What DATABASE_URL may say."""

import pytest

from common.errors import BadInput
from console.storage.database_address import build_file_url, parse_database_url


def test_one_server_is_given_up_soon():
    found = parse_database_url("postgres://weir:secret@database:5432/weir?sslmode=require")
    assert (found["HOST"], found["PORT"], found["NAME"]) == ("database", 5432, "weir")
    assert found["OPTIONS"]["sslmode"] == "require"
    assert found["OPTIONS"]["connect_timeout"] == 3
    assert "target_session_attrs" not in found["OPTIONS"]


def test_of_several_the_one_that_takes_writes_is_meant():
    found = parse_database_url("postgres://weir:s%40cret@a:5433,b/weir?connect_timeout=9")
    assert (found["HOST"], found["PORT"]) == ("a,b", "5433,5432")
    assert found["PASSWORD"] == "s@cret"
    assert found["OPTIONS"]["target_session_attrs"] == "read-write"
    assert found["OPTIONS"]["connect_timeout"] == 9


def test_a_server_may_be_an_ipv6_address():
    assert parse_database_url("postgres://weir:secret@[::1]:5433/weir")["HOST"] == "::1"
    found = parse_database_url("postgres://weir:secret@a,[::1]:5433/weir")
    assert (found["HOST"], found["PORT"]) == ("a,::1", "5432,5433")


def test_a_file_stays_a_file(tmp_path):
    assert parse_database_url(f"sqlite:///{tmp_path}/a,b")["NAME"] == f"{tmp_path}/a,b"
    odd = tmp_path / "C#, 100%41?" / "weir.sqlite3"
    assert parse_database_url(build_file_url(odd))["NAME"] == str(odd)


@pytest.mark.parametrize(
    "url",
    [
        "postgres://weir:secret@a:1,:2/weir",
        "postgres://weir:secret@a:1,b:secret/weir",
        "postgres://weir:secret@a:secret/weir",
        "postgres://weir:secret@[::1/weir",
        "postgres://weir:secret@a,[::1/weir",
        "unknown://weir:secret@a/weir",
        "mysql://weir:secret@a,b/weir",
    ],
)
def test_what_is_none_is_refused_by_name_and_never_quoted(url):
    with pytest.raises(BadInput, match="DATABASE_URL") as refused:
        parse_database_url(url)
    assert "secret" not in str(refused.value)
