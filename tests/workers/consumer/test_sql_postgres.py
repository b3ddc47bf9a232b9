"""The sql handler on a real PostgreSQL server; skipped where none is installed."""

import random
from contextlib import suppress

import psycopg
import pytest

from queues.nodes.server import free_port
from tests.postgres import postgres_url as postgres_url  # a fixture of the tests here
from tests.waiting import until
from tests.workers.samples import delivery_of
from workers.consumer.attempt import TimeLimitExceeded, use_time_limit
from workers.consumer.handler import Outcome, Place
from workers.consumer.registry import build

pytestmark = pytest.mark.slow


@pytest.fixture
def handler(postgres_url, tmp_path):
    handler = build("sql", {"url": postgres_url}, Place("alert", tmp_path))
    yield handler
    handler.close()
    with psycopg.connect(postgres_url) as database:
        database.execute("DROP TABLE IF EXISTS handled")


def test_postgres_keeps_each_event_once_however_often_its_block_comes(handler, postgres_url):
    one, two = delivery_of(500, "aa" * 16), delivery_of(40, "bb" * 16, attributes=[None] * 40)
    assert handler.handle([one]) == Outcome(effects=500)
    assert handler.handle([two, one]) == Outcome(effects=40, duplicates=500)
    with psycopg.connect(postgres_url) as database:
        rows = database.execute("SELECT id, value, attributes FROM handled WHERE id LIKE 'aa%'").fetchall()
    assert {row[0] for row in rows} == set(one.get_event_ids().to_pylist())
    assert all(row[2] == {"unit": "%"} for row in rows)


def test_postgres_takes_nothing_of_a_call_with_poison_and_goes_on_after_it(handler):
    poison = delivery_of(3, "cc" * 16, attributes=["{}", "{not json}", "{}"])
    with pytest.raises(psycopg.Error):
        handler.handle([delivery_of(5, "dd" * 16), poison])
    assert handler.handle([delivery_of(5, "dd" * 16), poison.extract_part(0, 1)]) == Outcome(effects=6)


def test_postgres_that_dropped_the_connection_is_asked_again(handler, postgres_url):
    handler.handle([delivery_of(1, "aa" * 16)])
    with psycopg.connect(postgres_url, autocommit=True) as database:
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
    assert handler.handle([delivery_of(1, "bb" * 16)]).failures[0].transient
    assert handler.handle([delivery_of(1, "bb" * 16)]) == Outcome(effects=1)


def test_postgres_where_an_insert_waited_for_too_long_takes_the_same_block_once_it_can(handler, postgres_url):
    handler.handle([delivery_of(1, "aa" * 16)])
    block = delivery_of(8, "bb" * 16)
    with psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE handled")
        with pytest.raises(TimeLimitExceeded), use_time_limit(0.3):
            handler.handle([block])
        until(lambda: transactions_open(postgres_url) == 1)  # the lock's own
    assert handler.handle([block]) == Outcome(effects=8)
    assert transactions_open(postgres_url) == 0


def test_postgres_that_takes_no_connections_is_not_blamed_on_the_events(tmp_path):
    away = f"postgresql://postgres@127.0.0.1:{free_port()}/postgres"
    handler = build("sql", {"url": away}, Place("alert", tmp_path))
    failures = handler.handle([delivery_of(5, "aa" * 16), delivery_of(5, "bb" * 16)]).failures
    assert [(failure.block, failure.transient) for failure in failures] == [(0, True), (1, True)]


def test_postgres_blames_an_id_that_no_index_takes_on_its_event(handler):
    unpacked = random.Random(1).randbytes(4_000).hex()
    with pytest.raises(psycopg.errors.ProgramLimitExceeded):
        handler.handle([delivery_of(2, "aa" * 16, id=["short", unpacked])])


@pytest.mark.parametrize("impatient", [False, True])
def test_postgres_makes_the_table_at_the_next_call_where_it_could_not_at_the_first(postgres_url, tmp_path, impatient):
    url = postgres_url + "?options=-c%20lock_timeout%3D200" * impatient
    handler = build("sql", {"url": url, "table": "later"}, Place("alert", tmp_path))
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(hashtext('weir:handled'))")
        with suppress(TimeLimitExceeded), use_time_limit(0.5):
            assert handler.handle([delivery_of(1, "aa" * 16)]).failures[0].transient
    assert handler.handle([delivery_of(1, "aa" * 16)]) == Outcome(effects=1)
    handler.close()
    with psycopg.connect(postgres_url) as database:
        database.execute("DROP TABLE later")


def transactions_open(url: str) -> int:
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    with psycopg.connect(url) as database:
        return int(database.execute(query).fetchone()[0])


def test_postgres_takes_attributes_that_no_jsonb_holds(handler, postgres_url):
    attributes = ['{"raw": "a\\u0000", "path": "c:\\\\u0000"}', '{"small": 1e-999999}', '{"unit": "%"}', None]
    assert handler.handle([delivery_of(4, "aa" * 16, attributes=attributes)]) == Outcome(effects=4)
    with psycopg.connect(postgres_url) as database:
        rows = database.execute("SELECT attributes FROM handled ORDER BY id").fetchall()
    assert [row[0] for row in rows] == [{"raw": "a\ufffd", "path": "c:\\u0000"}, {"small": 0.0}, {"unit": "%"}, None]
