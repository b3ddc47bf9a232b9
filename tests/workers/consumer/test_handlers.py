"""The shipped handlers: what they do, and that doing it twice has the effect once."""

import hashlib
import hmac
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import psycopg
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from common.errors import BadInput
from tests.workers.samples import TIME_US, delivery_of
from workers.consumer import handler
from workers.consumer.handler import Delivery, Options, Outcome, Place, is_away
from workers.consumer.handlers.emulate import Emulate
from workers.consumer.handlers.parquet import Parquet, build_hidden_path
from workers.consumer.handlers.sql import Sql
from workers.consumer.handlers.webhook import Webhook
from workers.consumer.registry import build, get_handler

DAY_US = 86_400_000_000
SAMPLES = "python:tests.workers.consumer.handler_samples"


@pytest.fixture
def place(tmp_path):
    return Place("alert", tmp_path)


def archived_ids(place: Place) -> list[str]:
    files = sorted(place.data.glob("archive/queue=alert/day=*/[!.]*.parquet"))
    return [name for file in files for name in pq.read_table(file, partitioning=None)["id"].to_pylist()]


def kept_ids(place: Place, table: str = "handled") -> list[str]:
    with sqlite3.connect(place.data / "handled.sqlite3") as database:
        rows = database.execute(f"SELECT id FROM {table} ORDER BY id").fetchall()
    database.close()
    return [row[0] for row in rows]


@hypothesis_settings(deadline=None)
@given(st.integers(1, 40), st.data())
def test_a_part_keeps_the_ids_its_events_have_in_the_whole_block(count, data):
    whole = delivery_of(count, id=[None if row % 3 else f"own{row}" for row in range(count)])
    start = data.draw(st.integers(0, count - 1))
    stop = data.draw(st.integers(start + 1, count))
    middle = data.draw(st.integers(start, stop - 1))
    part = whole.extract_part(start, stop).extract_part(middle - start, stop - start)
    assert part.get_event_ids().to_pylist() == whole.get_event_ids().to_pylist()[middle:stop]
    assert part.key == f"{whole.block_id}:{middle}-{stop - 1}"


def test_blocks_of_every_size_leave_a_few_arrays_in_memory():
    batch = delivery_of(3_000).batch
    for events in range(1, 3_000, 50):
        Delivery("ab" * 16, batch.slice(0, events)).get_event_ids()
    assert handler._rows_as_text.cache_info().currsize <= 16


def test_sql_inserts_each_event_once_however_often_its_block_or_its_id_comes(place):
    handler = build("sql", {}, place)
    one, two = delivery_of(5, "aa" * 16), delivery_of(4, "bb" * 16)
    assert handler.handle([one]) == Outcome(effects=5)
    assert handler.handle([two, one]) == Outcome(effects=4, duplicates=5)
    assert kept_ids(place) == sorted(one.get_event_ids().to_pylist() + two.get_event_ids().to_pylist())
    named = delivery_of(2, "cc" * 16, id=["x", "y"]), delivery_of(2, "dd" * 16, id=["y", "z"])
    assert handler.handle(named) == Outcome(effects=3, duplicates=1)


def test_sql_keeps_the_whole_event(place):
    build("sql", {"table": "kept"}, place).handle([delivery_of(1, id=["e"])])
    with sqlite3.connect(place.data / "handled.sqlite3") as database:
        row = database.execute("SELECT * FROM kept").fetchone()
    database.close()
    assert row == ("alert", "e", TIME_US, "load", "host-1", "core0", 0.0, '{"unit": "%"}')


def test_sql_that_fails_in_the_middle_leaves_nothing_of_the_call(place):
    handler = build("sql", {}, place)
    handler.handle([delivery_of(1, "aa" * 16)])
    with sqlite3.connect(place.data / "handled.sqlite3") as database:
        database.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON handled WHEN NEW.value = 3 "
            "BEGIN SELECT RAISE(ABORT, 'no threes'); END"
        )
    database.close()
    with pytest.raises(sqlite3.IntegrityError, match="no threes"):
        handler.handle([delivery_of(8, "bb" * 16)])
    assert len(kept_ids(place)) == 1
    assert handler.handle([delivery_of(2, "cc" * 16)]) == Outcome(effects=2)


@pytest.mark.parametrize(
    "account", ["weir:s%ecret@orders", "weir:%secret@orders", "weir:own@secret@orders.invalid", "weir:secret@[::1"]
)
def test_sql_quotes_no_password_of_an_address_that_is_none_and_blames_no_event(place, account):
    """What it says is the error of a dead letter, which everybody reads who may see the queue."""
    environment = {"WEIR_SECRET_ORDERS": f"postgresql://{account}/orders"}
    handler = Sql(place, Options("sql", {"url_environment": "WEIR_SECRET_ORDERS"}), environment)
    (failure,) = handler.handle([delivery_of(3)]).failures
    assert failure.transient and "%40" in failure.error
    assert "cret" not in failure.error


@pytest.mark.parametrize("handler", ["sql", "parquet"])
def test_a_data_folder_that_nothing_can_be_written_to_is_not_blamed_on_the_events(place, handler):
    away = Place("alert", place.data / "a file")
    away.data.touch()  # no folder: nobody can write below it, root included
    built = build(handler, {}, away)
    failures = built.handle([delivery_of(3, "aa" * 16), delivery_of(3, "bb" * 16)]).failures
    assert [(failure.block, failure.transient) for failure in failures] == [(0, True), (1, True)]
    away.data.unlink()
    assert built.handle([delivery_of(3, "aa" * 16)]) == Outcome(effects=3)


def test_a_database_that_somebody_else_keeps_locked_is_not_blamed_on_the_events(place, monkeypatch):
    monkeypatch.setattr("workers.consumer.handlers.sql.WAIT_FOR_LOCK_SECONDS", 0.01)
    handler = build("sql", {}, place)
    handler.handle([delivery_of(1, "aa" * 16)])
    with closing(sqlite3.connect(place.data / "handled.sqlite3")) as other:
        other.execute("BEGIN IMMEDIATE")
        failure = handler.handle([delivery_of(3, "bb" * 16)]).failures[0]
    assert failure.transient and "locked" in failure.error
    assert handler.handle([delivery_of(3, "bb" * 16)]) == Outcome(effects=3)


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (psycopg.OperationalError("connection refused"), True),
        (psycopg.InterfaceError("the connection is closed"), True),
        (psycopg.errors.AdminShutdown(), True),
        (psycopg.errors.DiskFull(), True),
        (psycopg.errors.ReadOnlySqlTransaction(), True),
        (psycopg.errors.InsufficientPrivilege(), True),
        (psycopg.errors.DeadlockDetected(), True),
        (psycopg.errors.ProgramLimitExceeded("index row size 2712 exceeds btree maximum"), False),
        (psycopg.errors.InvalidTextRepresentation(), False),
        (psycopg.errors.CheckViolation(), False),
        (psycopg.errors.RaiseException(), False),
        (psycopg.DataError("text fields cannot contain NUL"), False),
        (sqlite3.OperationalError("database or disk is full"), True),
        (sqlite3.DatabaseError("file is not a database"), True),
        (sqlite3.IntegrityError("no threes"), False),
        (sqlite3.DataError("string or blob too big"), False),
        (OSError(28, "No space left on device"), True),
        (ValueError("bad"), False),
    ],
)
def test_events_are_blamed_for_what_is_in_them_and_not_for_what_is_away(error, away):
    assert is_away(error) is away


def test_parquet_writes_a_workers_blocks_of_one_day_into_one_file(place):
    blocks = [delivery_of(3, f"{number:032x}") for number in range(4)]
    assert build("parquet", {}, place).handle(blocks) == Outcome(effects=12)
    assert len(list(place.data.glob("archive/queue=alert/day=*/*.parquet"))) == 1
    assert sorted(archived_ids(place)) == sorted(i for b in blocks for i in b.get_event_ids().to_pylist())


def test_parquet_returns_when_the_names_of_its_files_are_on_the_disk(place, monkeypatch):
    synced: list[str] = []
    monkeypatch.setattr("os.fsync", lambda opened: synced.append(Path(f"/proc/self/fd/{opened}").readlink().name))
    build("parquet", {}, place).handle([delivery_of(4, "aa" * 16)])
    assert synced[0].endswith(".parquet.tmp")
    assert len(synced) == 3 and "queue=alert" in synced and any(name.startswith("day=") for name in synced)


def test_parquet_sorts_blocks_by_the_day_of_their_newest_event(place):
    late = delivery_of(2, "bb" * 16, time=[TIME_US, TIME_US + DAY_US])
    build("parquet", {}, place).handle([delivery_of(2, "aa" * 16), late])
    days = sorted(path.name for path in place.data.glob("archive/queue=alert/day=*"))
    assert days == ["day=2026-09-21", "day=2026-09-22"]


def test_parquet_recognises_a_block_that_comes_again_in_other_company(place):
    handler = build("parquet", {}, place)
    one, two, three = (delivery_of(3, letter * 32) for letter in "abc")
    handler.handle([one, two])
    assert handler.handle([two, three]) == Outcome(effects=3, duplicates=3)
    assert len(archived_ids(place)) == len(set(archived_ids(place))) == 9


@hypothesis_settings(max_examples=60, deadline=None)
@given(parts=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 8)), max_size=5))
def test_parquet_writes_a_row_once_however_a_block_was_separated_before(parts):
    """A separation of poison that ended half way has written parts; then the block comes again whole."""
    with TemporaryDirectory() as folder:
        place, block = Place("alert", Path(folder)), delivery_of(8, "ab" * 16)
        handler = build("parquet", {}, place)
        done = [handler.handle([block.extract_part(first, min(first + count, 8))]) for first, count in parts]
        done += [handler.handle([block]), handler.handle([block])]
        assert sum(outcome.effects for outcome in done) == 8
        assert sorted(archived_ids(place)) == sorted(block.get_event_ids().to_pylist())
        assert done[-1] == Outcome(0, 8)


@pytest.mark.parametrize("point", ["written", "recorded"])
def test_parquet_is_exact_when_its_worker_dies_at_any_point(place, point, monkeypatch):
    class Died(BaseException):
        pass

    def die(*unused: object) -> None:
        raise Died

    one, two = delivery_of(3, "aa" * 16), delivery_of(3, "bb" * 16)
    dying = Parquet(place, Options("parquet", {}))
    if point == "written":  # the hidden file is there, the index was not committed
        monkeypatch.setattr(dying, "_get_relative_path", die)
    else:  # the index names a file that is still hidden
        monkeypatch.setattr("workers.consumer.handlers.parquet.reveal", die)
    with pytest.raises(Died):
        dying.handle([one, two])
    monkeypatch.undo()
    assert archived_ids(place) == []
    Parquet(place, Options("parquet", {})).handle([two])
    Parquet(place, Options("parquet", {})).handle([one])
    assert sorted(archived_ids(place)) == sorted(one.get_event_ids().to_pylist() + two.get_event_ids().to_pylist())


def test_parquet_makes_its_index_at_the_next_call_where_it_could_not_at_the_first(place, monkeypatch):
    monkeypatch.setattr("workers.consumer.handlers.parquet.WAIT_FOR_LOCK_SECONDS", 0.01)
    handler = build("parquet", {}, place)
    (place.data / "archive").mkdir()
    with closing(sqlite3.connect(place.data / "archive" / "index.sqlite3")) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert handler.handle([delivery_of(3)]).failures[0].transient
    assert handler.handle([delivery_of(3)]) == Outcome(effects=3)


def test_parquet_sweeps_what_a_crash_left_behind_and_nothing_else(place):
    handler = Parquet(place, Options("parquet", {}))
    handler.handle([delivery_of(1)])
    folder = next(place.data.glob("archive/queue=alert/day=*"))
    orphan = build_hidden_path(folder / "0123.parquet")
    orphan.touch()
    age = orphan.stat().st_mtime
    assert handler.sweep(age + 60) == 0
    assert handler.sweep(age + 2 * 86_400) == 1
    assert len(archived_ids(place)) == 1


def webhook(place: Place, answer: Callable[[httpx.Request], httpx.Response], **options: Any) -> Webhook:
    document = {"url": "https://receiver.test/events", **options}
    environment = {"WEIR_SECRET_HOOK": "open sesame"}
    transport = httpx.MockTransport(answer)
    return Webhook(place, Options("webhook", document), transport, environment)


def test_webhook_posts_json_lines_signed_and_keyed_by_the_block(place):
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(202)

    outcome = webhook(place, answer, secret_environment="WEIR_SECRET_HOOK").handle([delivery_of(2, "aa" * 16)])
    assert outcome == Outcome(effects=2)
    request = seen[0]
    expected = "sha256=" + hmac.new(b"open sesame", request.content, hashlib.sha256).hexdigest()
    assert request.headers["X-Weir-Signature"] == expected
    assert request.headers["Idempotency-Key"] == "aa" * 16
    lines = [json.loads(line) for line in request.content.splitlines()]
    assert [line["id"] for line in lines] == [f"{'aa' * 16}:{row}" for row in range(2)]
    assert lines[0]["attributes"] == {"unit": "%"}


def test_webhook_sends_valid_json_whatever_a_producer_wrote_as_attributes(place):
    bodies: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(request.content)
        return httpx.Response(200)

    webhook(place, answer).handle([delivery_of(2, attributes=["{broken}", None])])
    assert [json.loads(line)["attributes"] for line in bodies[0].splitlines()] == ["{broken}", None]


@pytest.mark.parametrize(
    ("status", "poison", "transient"),
    [(400, True, False), (422, True, False), (401, False, True), (429, False, True), (503, False, True)],
)
def test_webhook_blames_the_events_only_for_what_is_their_fault(place, status, poison, transient):
    handler = webhook(place, lambda request: httpx.Response(status, headers={"Retry-After": "7"}))
    failure = handler.handle([delivery_of(1)]).failures[0]
    assert (failure.poison, failure.transient) == (poison, transient)
    assert failure.delay_seconds == (7.0 if transient else 0.0)
    assert str(status) in failure.error


@pytest.mark.parametrize("status", [None, 404, 422])
def test_webhook_names_the_receiver_that_fails_and_nothing_more_of_its_address(place, status):
    """Addresses of chats and of functions are secrets: who knows one may post there."""

    def answer(request: httpx.Request) -> httpx.Response:
        if status is None:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(status)

    handler = webhook(place, answer, url="https://receiver.test/T024/s3cret?code=s3cret")
    (failure,) = handler.handle([delivery_of(1)]).failures
    assert "receiver.test" in failure.error and "s3cret" not in failure.error
    assert status is not None or (failure.transient and "did not respond" in failure.error)


def test_webhook_counts_what_the_receiver_had_before_as_duplicates(place):
    replayed = webhook(place, lambda r: httpx.Response(200, headers={"Idempotency-Replayed": "true"}))
    assert replayed.handle([delivery_of(3)]) == Outcome(duplicates=3)
    assert webhook(place, lambda r: httpx.Response(409)).handle([delivery_of(3)]) == Outcome(duplicates=3)


def test_webhook_posts_an_event_that_a_producer_sent_again_under_another_key_and_the_same_id(place):
    """As docs/start/publish.md says: the receiver knows it by its line."""
    posts: list[tuple[str, str]] = []

    def take(request: httpx.Request) -> httpx.Response:
        posts.append((request.headers["Idempotency-Key"], json.loads(request.content)["id"]))
        return httpx.Response(200)

    webhook(place, take).handle([delivery_of(1, name * 16, id=["order-1"]) for name in ("aa", "bb")])
    assert posts == [("aa" * 16, "order-1"), ("bb" * 16, "order-1")]


def test_webhook_fails_one_block_and_delivers_the_other(place):
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(500 if request.headers["Idempotency-Key"].startswith("bb") else 200)

    outcome = webhook(place, answer).handle([delivery_of(2, "aa" * 16), delivery_of(3, "bb" * 16)])
    assert outcome.effects == 2
    assert [failure.block for failure in outcome.failures] == [1]


@pytest.mark.parametrize(
    ("handler", "options", "field"),
    [
        ("sql", {"table": "a; drop"}, "table"),
        ("sql", {"url": "mysql://x"}, "url"),
        ("sql", {"url_environment": "WEIR_SECRET_UNSET"}, "url_environment"),
        ("sql", {"tabel": "x"}, "tabel"),
        ("webhook", {}, "url"),
        ("webhook", {"url": "ftp://x"}, "url"),
        ("webhook", {"url": "https://x", "secret_environment": "WEIR_SECRET_UNSET"}, "secret_environment"),
        ("webhook", {"url": "https://x", "timeout_seconds": "5"}, "timeout_seconds"),
        ("webhook", {"url": "https://x", "headers": {"a": 1}}, "headers"),
    ],
)
def test_options_that_are_wrong_are_named(place, handler, options, field):
    with pytest.raises(BadInput) as caught:
        build(handler, options, place)
    assert caught.value.field == f"handler_options.{field}"


def test_python_hands_over_events_with_their_ids(place):
    assert build(f"{SAMPLES}.ignore", {}, place).handle([delivery_of(3)]) == Outcome(effects=3)
    with pytest.raises(ValueError, match="odd"):
        build(f"{SAMPLES}.raise_on_odd", {}, place).handle([delivery_of(3)])


@pytest.mark.parametrize(
    ("name", "options", "failed"), [("refuse_odd_block", {"takes": "block"}, [1]), ("refuse_odd", {}, [0, 1])]
)
def test_what_a_python_callable_says_has_failed_is_not_taken_for_handled(place, name, options, failed):
    """It is given no place in the call: of events it failed at all, of blocks at the one it was given."""
    handler = build(f"{SAMPLES}.{name}", options, place)
    answer = handler.handle([delivery_of(1, "aa" * 16), delivery_of(3, "bb" * 16)])
    assert [failure.block for failure in answer.failures] == failed
    assert {failure.error for failure in answer.failures} == {"odd: 1.0"}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module_at_all.f", "importing no_such_module_at_all failed"),
        ("tests.workers.consumer.handler_samples.missing", "has no missing"),
        ("tests.workers.consumer.handler_samples.NOT_CALLABLE", "must be callable"),
        ("f", "does not include a module"),
    ],
)
def test_python_says_which_part_of_its_path_is_wrong(place, path, message):
    with pytest.raises(BadInput, match=message) as caught:
        build(f"python:{path}", {}, place)
    assert caught.value.field == "handler"


def emulate(place: Place, **options: Any) -> Emulate:
    return Emulate(place, Options("emulate", options), sleep=lambda seconds: None)


@pytest.mark.parametrize("distribution", ["constant", "exponential", "lognormal"])
def test_emulate_takes_its_mean_time_on_average(place, distribution):
    handler = emulate(place, distribution=distribution, seconds=0.01, cv=0.5)
    total_seconds = sum(handler.compute_service_seconds(delivery_of(100, f"{n:032x}")) for n in range(40))
    assert total_seconds == pytest.approx(4000 * 0.01, rel=0.1)


def test_emulate_takes_as_long_when_a_block_is_replayed(place):
    options: dict[str, Any] = {"distribution": "exponential", "seconds": 0.01, "per": "block", "seed": 4}
    first = emulate(place, **options).compute_service_seconds(delivery_of(9))
    assert emulate(place, **options).compute_service_seconds(delivery_of(9)) == first
    assert emulate(place, **{**options, "seed": 5}).compute_service_seconds(delivery_of(9)) != first


def test_emulate_sleeps_the_drawn_time_block_by_block_and_says_when_each_was_done(place):
    slept: list[float] = []
    handler = Emulate(place, Options("emulate", {"seconds": 0.5, "per": "block"}), slept.append)
    outcome = handler.handle([delivery_of(2), delivery_of(3)])
    assert slept == [0.5, 0.5]
    assert [events for _, events in outcome.completions] == [2, 3]


def test_an_unknown_handler_is_refused_with_the_known_ones(place):
    with pytest.raises(BadInput, match="emulate, noop, parquet, sql, webhook"):
        build("sqll", {}, place)


def test_a_handler_is_kept_until_its_options_change(tmp_path):
    first = get_handler("q", "emulate", {"seconds": 1}, tmp_path)
    assert get_handler("q", "emulate", {"seconds": 1}, tmp_path) is first
    assert get_handler("q", "emulate", {"seconds": 2}, tmp_path) is not first


def test_options_that_are_no_object_or_not_finite_are_refused(place):
    with pytest.raises(BadInput, match="object"):
        build("noop", ["x"], place)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="seconds"):
        build("emulate", {"seconds": float("nan")}, place)
