"""Sessions: nobody who reads the database has one, and none comes back once it has ended."""

import pytest
from django.db import connection
from django.test import Client

from tests.console.conftest import PASSWORD

pytestmark = pytest.mark.django_db


def everything_kept() -> str:
    """All rows of all tables, as text."""
    with connection.cursor() as cursor:
        rows = []
        for table in connection.introspection.django_table_names(only_existing=True):
            cursor.execute(f'SELECT * FROM "{table}"')
            rows += cursor.fetchall()
    return str(rows)


def test_the_database_holds_no_key_of_a_session(browsers, stored_snapshot):
    browser = browsers["viewer"]
    assert browser.get("/nodes/").status_code == 200
    assert browser.cookies["sessionid"].value not in everything_kept()


def test_a_session_that_was_never_used_stays_dead_when_its_owner_is_enabled_again(people, browsers, stored_snapshot):
    unused = Client()
    unused.post("/login/", {"username": "operator", "password": PASSWORD})
    for change in ("disable", "enable"):
        posted = {"change": change, "reason": "a test"}
        browsers["administrator"].post(f"/settings/users/{people['operator'].pk}", posted)
    assert unused.get("/nodes/").status_code == 302
