"""Sensors that read from Redis: real servers, and the programs whose queues are there."""

import itertools

import dramatiq
import httpx
import psutil
import pytest
import redis
import rq
from dramatiq.brokers.redis import RedisBroker
from huey import RedisHuey

from common.errors import BadInput
from tests.waiting import until
from tests.workers.plants.foreign.endless_server import answering, drops
from workers.plants.foreign.declared.declaration import parse_declaration
from workers.plants.foreign.declared.declared_plant import DeclaredPlant
from workers.plants.foreign.declared.examples import EXAMPLES
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

TEXT = "name: shop\nsensors:\n  it: {%s}\n"


def reading(command, address, variable="WEIR_SECRET_REDIS"):
    declaration = parse_declaration(TEXT % f"redis: '{command}', server: {variable}")
    plant = DeclaredPlant(declaration, {variable: address}, httpx.MockTransport(lambda _: httpx.Response(500)))
    plant.get_topology()
    return plant.readings["it"]


def known(command, address):
    return reading(command, address).get_value()


@pytest.fixture
def url(control_server):
    return control_server.url


def test_each_command_gives_a_number_and_what_is_not_there_is_not_known(control, url):
    control.rpush("list", 1, 2, 3)
    control.sadd("set", "a")
    control.zadd("scored", {"a": 2.5, "b": 7})
    control.hset("hash", mapping={"n": 12, "text": "x" * 200})
    control.xadd("stream", {"a": 1})
    control.set("number", "4.5")
    control.set("long name", 1)
    assert known("LLEN list", url) == 3
    assert known("llen absent", url) == 0
    assert known("SCARD set", url) == known("XLEN stream", url) == known("EXISTS set", url) == 1
    assert known("ZCARD scored", url) == known("HLEN hash", url) == 2
    assert known("ZCOUNT scored 3 +inf", url) == 1
    assert known("ZSCORE scored a", url) == 2.5
    assert known("GET number", url) == 4.5
    assert known('GET "long name"', url) == 1
    assert known("HGET hash n", url) == 12
    for absent in ("GET absent", "HGET hash absent", "ZSCORE scored absent"):
        assert known(absent, url) is None


def test_what_is_no_number_or_of_another_kind_says_so_however_long_it_is(control, url):
    control.set("text", "x" * 10_000_000)
    control.hset("hash", "text", "x" * 10_000_000)
    for command, words in {
        "GET text": "which is not a number",
        "HGET hash text": "hash text does not contain a number",
        "LLEN text": "WRONGTYPE",
    }.items():
        error = reading(command, url).error
        assert isinstance(error, InvalidPlantResponse) and words in str(error)
        assert len(str(error)) < 400


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("DEL list", "must start with one of LLEN"),
        ("KEYS *", "must start with one of LLEN"),
        ("EVAL x 0", "must start with one of LLEN"),
        ("LLEN a b", "must have one word after LLEN, not 2"),
        ("HGET hash", "must have 2 words after HGET, not 1"),
        ('GET "open', "is not a valid command"),
    ],
)
def test_nothing_is_asked_but_what_reads_a_number(url, command, words):
    with pytest.raises(BadInput, match=r"sensors\.it\.redis") as refused:
        reading(command.replace("'", "''"), url)
    assert words in str(refused.value)


def test_the_address_comes_from_the_environment_and_stands_in_no_message(url):
    with pytest.raises(BadInput, match=r"sensors\.it\.server"):
        reading("LLEN list", url, "REDIS_URL")
    assert "names WEIR_SECRET_REDIS, which is not set" in str(reading("LLEN list", "").error)
    for address, kind in (
        ("mysql://me:hunter2@db/x", InvalidPlantResponse),
        ("redis://me:hunter2@127.0.0.1:1/0", PlantUnavailable),
        (url.replace("redis://", "redis://me:hunter2@").replace("@:", "@"), PlantUnavailable),
        ("redis://me:hunter2@127.0.0.1:many/0", InvalidPlantResponse),
    ):
        error = reading("LLEN list", address).error
        assert isinstance(error, kind) and "hunter2" not in str(error), address


@pytest.mark.parametrize(
    "address",
    [
        "redis://me:hunter2/x@db:6379/0",
        "redis://:hunter2#x@db",
        "redis://hunter2/x@db",
        "redis://hunter2?x@db",
        "valkey://me:hunter2@db",
        "redis://me:x@127.0.0.1:1?socket_timeout=hunter2",
    ],
)
def test_no_piece_of_a_password_is_said_where_the_address_is_written_wrongly(address):
    error = reading("LLEN list", address).error
    assert isinstance(error, InvalidPlantResponse | PlantUnavailable) and "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (itertools.chain([b"$10000000000\r\n"], itertools.repeat(b"1" * 65_536)), "more than 1048576 bytes"),
        (itertools.chain([b"*1000000000\r\n"], itertools.repeat(b":1\r\n" * 10_000)), "more than 1048576 bytes"),
        (drops(b"$1000000\r\n"), "no complete response within"),
        (iter([b"what?\r\n"]), 'got "w" as reply type byte'),
        (iter([]), "the request to the server failed"),
    ],
)
def test_a_server_that_answers_without_end_is_not_listened_to(answer, words, monkeypatch):
    if words == "no complete response within":
        monkeypatch.setenv("WEIR_PLANT_TIMEOUT_SECONDS", "0.5")
    before = psutil.Process().memory_info().rss
    with answering("redis", answer) as address:
        error = reading("LLEN list", address).error
    assert isinstance(error, InvalidPlantResponse | PlantUnavailable) and words in str(error)
    assert psutil.Process().memory_info().rss - before < 50e6


def measured(example, sensor, address):
    command = parse_declaration(EXAMPLES[example]).sensors[sensor].source.command
    return known(" ".join(command), address)


def test_the_example_for_rq_reads_what_rq_has(control, url):
    connection = redis.Redis.from_url(url)
    queue = rq.Queue("resize", connection=connection)
    for _ in range(3):
        queue.enqueue(len, "abc")
    assert measured("rq", "resize_waiting", url) == 3
    worker = rq.SimpleWorker([queue], connection=connection)
    worker.register_birth()
    assert measured("rq", "resize_workers", url) == 1
    worker.register_death()
    worker.work(burst=True)
    assert measured("rq", "resize_waiting", url) == measured("rq", "resize_workers", url) == 0


def test_the_example_for_dramatiq_reads_what_dramatiq_has(control, url):
    broker = RedisBroker(url=url)
    parse = dramatiq.actor(lambda: None, actor_name="parse", queue_name="parse", broker=broker)
    for _ in range(3):
        parse.send()
    assert measured("dramatiq", "parse_waiting", url) == known("HLEN dramatiq:parse.msgs", url) == 3
    worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=1)
    worker.start()
    try:
        until(lambda: known("HLEN dramatiq:parse.msgs", url) == 0)
        assert measured("dramatiq", "parse_waiting", url) == 0
        assert known("ZCARD dramatiq:__heartbeats__", url) >= 1
    finally:
        worker.stop()
        broker.close()


def test_the_example_for_huey_reads_what_huey_has(control, url):
    huey = RedisHuey("thumbs", url=url)
    thumb = huey.task()(lambda: None)
    for _ in range(3):
        thumb()
    thumb.schedule(delay=60)
    assert measured("huey", "thumbs_waiting", url) == 4  # a consumer sets delayed tasks aside
    while (task := huey.dequeue()) is not None:
        huey.execute(task)
    assert measured("huey", "thumbs_waiting", url) == 0
    assert known("ZCARD huey.schedule.thumbs", url) == 1
