"""What REDIS_URL may say."""

import pytest

from common.errors import BadInput
from queues.control.address import parse_sentinels


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379/0",
        "redis://[::1]:6379",
        "redis://:w%2Ford@host/0?socket_timeout=2",
        "rediss://user:word@host/0",
        "unix:///tmp/s",
        "unix://user:word@/tmp/a@b?db=1",
    ],
)
def test_an_address_of_one_server_names_no_sentinels(url):
    assert parse_sentinels(url) is None


def test_sentinels_are_read_with_the_name_the_database_and_the_login():
    found = parse_sentinels("sentinel://web:s%40cret@a:1,b,[::1]:3/control/2")
    assert found.hosts == (("a", 1), ("b", 26379), ("::1", 3))
    assert (found.name, found.database) == ("control", 2)
    assert found.login == {"username": "web", "password": "s@cret"}


def test_the_broker_gets_an_address_a_sentinel_with_the_login_as_it_was():
    found = parse_sentinels("sentinel://web:s%40cret@a:1,b:2/control")
    assert found.broker_url == "sentinel://web:s%40cret@a:1/0;sentinel://web:s%40cret@b:2/0"
    assert parse_sentinels("sentinel://[::1]:3/control").broker_url == "sentinel://[::1]:3/0"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://secret@a/control", "start with redis://"),
        ("secret", "start with redis://"),
        ("redis://u:secret/more@a:6379/0", "write / as %2F"),
        ("redis://u:1/secret@a:6379/0", "write / as %2F"),
        ("redis://u:secret?more@a:6379/0", "? as %3F"),
        ("redis://u:secret#more@a:6379/0", "# as %23"),
        ("redis://u:secret[more@a:6379/0", "have the form redis://"),
        ("rediss://u:secret@a:637O/0", "have the form redis://"),
        ("redis://u:secret@a:70000/0", "have the form redis://"),
        ("sentinel://u:secret@a:1,b:x/control/0", "Sentinel 2 is invalid"),
        ("sentinel://u:secret@a:1,,b:1/control/0", "Sentinel 2 is invalid"),
        ("sentinel://u:secret@a:1,[::1/control/0", "Sentinel 2 is invalid"),
        ("sentinel://u:secret@a:70000/control/0", "Sentinel 1 is invalid"),
        ("sentinel://u:secret@a:1,b:1,a:1/control/0", "lists sentinel 3 twice"),
        ("sentinel://u:secret@a:1", "must include the name of the monitored primary"),
        ("sentinel://u:secret@a:1/0 0/0", "must include the name of the monitored primary"),
        ("sentinel://u:secret@a:1/control/x", "a database number from 0 to 15"),
        ("sentinel://u:secret@a:1/control/16", "a database number from 0 to 15"),
        ("sentinel://u:secret@a:1/control/0?timeout=secret", "must not contain a query"),
    ],
)
def test_what_is_none_is_refused_by_name_and_never_quoted(url, said):
    with pytest.raises(BadInput, match="REDIS_URL") as refused:
        parse_sentinels(url)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)
