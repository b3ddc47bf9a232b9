"""The sql handler on a real PostgreSQL server; skipped where none is installed."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.postgres import postgres_url as postgres_url  # a fixture of the tests here
from tests.workers.samples import delivery_of
from workers.consumer.handlers.effects import Outcome
from workers.consumer.handlers.handler import Handler, Place
from workers.consumer.handlers.registry import build

pytestmark = pytest.mark.slow


@pytest.fixture
def handler(postgres_url: str, tmp_path: Path) -> Iterator[Handler]:
    handler = build("sql", {"url": postgres_url}, Place("alert", tmp_path))
    yield handler
    handler.close()
    with psycopg.connect(postgres_url) as database:
        database.execute("DROP TABLE IF EXISTS handled")


def test_postgres_keeps_each_event_once_however_often_its_block_comes(
    handler: Handler, postgres_url: str
) -> None:
    one, two = delivery_of(500, "aa" * 16), delivery_of(40, "bb" * 16, attributes=[None] * 40)
    assert handler.handle([one]) == Outcome(effects=500)
    assert handler.handle([two, one]) == Outcome(effects=40, duplicates=500)
    with psycopg.connect(postgres_url) as database:
        rows = database.execute("SELECT id, value, attributes FROM handled WHERE id LIKE 'aa%'").fetchall()
    assert {row[0] for row in rows} == set(one.ids().to_pylist())
    assert all(row[2] == {"unit": "%"} for row in rows)


def test_postgres_takes_nothing_of_a_call_with_poison_and_goes_on_after_it(handler: Handler) -> None:
    poison = delivery_of(3, "cc" * 16, attributes=["{}", "{not json}", "{}"])
    with pytest.raises(psycopg.Error):
        handler.handle([delivery_of(5, "dd" * 16), poison])
    assert handler.handle([delivery_of(5, "dd" * 16), poison.part(0, 1)]) == Outcome(effects=6)


def test_postgres_that_dropped_the_connection_is_asked_again(handler: Handler, postgres_url: str) -> None:
    handler.handle([delivery_of(1, "aa" * 16)])
    with psycopg.connect(postgres_url, autocommit=True) as database:
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
    with pytest.raises(psycopg.OperationalError):
        handler.handle([delivery_of(1, "bb" * 16)])
    assert handler.handle([delivery_of(1, "bb" * 16)]) == Outcome(effects=1)


def test_postgres_takes_attributes_that_no_jsonb_holds(handler: Handler, postgres_url: str) -> None:
    attributes = ['{"raw": "a\\u0000", "path": "c:\\\\u0000"}', '{"small": 1e-999999}', '{"unit": "%"}', None]
    assert handler.handle([delivery_of(4, "aa" * 16, attributes=attributes)]) == Outcome(effects=4)
    with psycopg.connect(postgres_url) as database:
        rows = database.execute("SELECT attributes FROM handled ORDER BY id").fetchall()
    assert [row[0] for row in rows] == [
        {"raw": "a\ufffd", "path": "c:\\u0000"},
        {"small": 0.0},
        {"unit": "%"},
        None,
    ]
