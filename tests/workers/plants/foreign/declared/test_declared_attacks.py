"""What a declaration, or its sources, can't do to the observer: grow, run on, leave its place, be code."""

import itertools
import os
import sqlite3
import threading
from contextlib import closing

import httpx
import psycopg
import pytest

from common.errors import BadInput, Forbidden, WeirError
from tests.postgres import postgres_url as postgres_url  # a fixture of these tests
from tests.workers.plants.foreign.endless_server import answering
from workers.plants.foreign.client import MAX_BYTES, PlantClient
from workers.plants.foreign.declared import sensor, sources
from workers.plants.foreign.declared.declaration import parse_declaration
from workers.plants.foreign.declared.declared_plant import DeclaredPlant
from workers.plants.foreign.declared.sensor import read_path
from workers.plants.foreign.declared.sources import PrometheusClient
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

SENSOR = "name: one\nsensors:\n  it: {}\n"


def test_a_declaration_that_grows_or_is_too_large_is_refused():
    bomb = "name: &a [x, x]\n" + "".join(f"k{n}: &k{n} [*{'a' if n == 0 else f'k{n - 1}'}, *a]\n" for n in range(9))
    for text in (bomb, "name: x\ntitle: " + "x" * 200_000, "name: " + "[" * 5_000, "a: b\n" * 3, "- " * 9_000):
        with pytest.raises(BadInput):
            parse_declaration(text)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("[@,@][]" + "|[@,@][]" * 30, "values for each input value"),
        ("[@,@]" + "|[@,@]" * 30 + "|to_string(@)", "to_string"),
        ("join('" + "x" * 300 + "', @)", "join"),
        ("[" * 400, "nested too deeply"),
        ("(" * 240 + "a" + ")" * 240 + "b", "is not valid JMESPath"),
        ("a" * 501, "501"),
        ("nothing_known(@)|", "is not valid JMESPath"),
    ],
    ids=["flatten", "share", "join", "brackets", "parentheses", "long", "half"],
)
def test_a_path_that_would_grow_is_refused(path, why):
    with pytest.raises(BadInput, match=why):
        read_path(path, "json")


def test_a_path_that_runs_long_is_ended(monkeypatch):
    monkeypatch.setattr(sensor, "MAX_STEPS", 10_000)
    rows = [{"n": at} for at in range(5_000)]
    with pytest.raises(InvalidPlantResponse, match="takes more than 10000 steps"):
        read_path("sum([?n > `1`].n)", "json").read(rows)
    assert read_path("sum([?n > `1`].n)", "json").read(rows[:100]) == sum(range(2, 100))


@pytest.mark.parametrize("secret", ["hunter2\n", " hunter2", "hünter2", "hun\0ter2", "hunter2\r\nX-Admin: 1"])
@pytest.mark.parametrize("how", ["bearer", "X-Token"])
def test_a_secret_that_no_header_takes_is_not_quoted(secret, how):
    sensor = f"{{url: 'http://x/s', json: '@', secret_environment: WEIR_SECRET_X, secret_as: {how}}}"
    environment, transport = {"WEIR_SECRET_X": secret}, httpx.MockTransport(lambda _: httpx.Response(200))
    plant = DeclaredPlant(parse_declaration(SENSOR.format(sensor)), environment, transport)
    with closing(plant):
        plant.get_topology()
    error = str(plant.readings["it"].error)
    assert "ter2" not in error and "names WEIR_SECRET_X, whose value cannot be sent" in error


def asked(address, query, seconds=2.0):
    return sources.query_single_value("WEIR_SECRET_DB", address, query, seconds)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT zeroblob(1000000000)",
        "SELECT randomblob(1000000000)",
        "SELECT group_concat(printf('%.*c', 900000, 'x')) FROM (VALUES (1), (2), (3))",
        "SELECT replace(printf('%.*c', 900000, 'x'), 'x', 'xxxx')",
        "SELECT 1; SELECT 2",
        "ATTACH DATABASE '/tmp/other' AS other",
        "PRAGMA writable_schema = 1",
        "SELECT n FROM pragma_table_info('jobs')",
    ],
)
def test_sqlite_makes_nothing_large_and_does_nothing_else(tmp_path, query):
    sqlite3.connect(tmp_path / "db").close()
    with pytest.raises(InvalidPlantResponse):
        asked(f"sqlite:///{tmp_path}/db", query)


@pytest.mark.parametrize(
    "password", ["hun%ter2", "hun ter2", "hun@ter2", "hun/ter2", "12/ter2", "[hunter2", "hun@ter2/x"]
)
def test_a_password_that_is_written_as_it_is_stands_in_no_message(password):
    with pytest.raises(WeirError, match="WEIR_SECRET_DB") as refused:
        asked(f"postgresql://me:{password}@127.0.0.1:1/x", "SELECT 1")
    assert not any(each in str(refused.value) for each in ("hun", "ter2", "12/"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "value", "error"),
    [
        ("SELECT 7.25", "7.25", None),
        ("WITH few AS (SELECT 3 AS n) SELECT sum(n) FROM few -- all of them", "3", None),
        ("VALUES (4)", "4", None),
        ("SELECT 1 WHERE false", None, None),
        ("SELECT generate_series(1, 1000000000)", None, "more than one row"),
        ("SELECT 1, 2", None, "only one column"),
        ("SELECT repeat('x', 2000000)", "x" * 100, None),
        ("SELECT 'a'), (SELECT 'b'", None, "does not exist"),
        ("SELECT 1); DROP TABLE jobs; SELECT (2", None, "syntax error"),
        ("WITH gone AS (DELETE FROM jobs RETURNING 1) SELECT count(*) FROM gone", None, "WITH clause"),
        ("SELECT nextval('numbers')", None, "read-only"),
    ],
)
def test_postgres_gives_one_short_value_of_one_statement(postgres_url, query, value, error):
    with psycopg.connect(postgres_url) as database:
        database.execute("CREATE TABLE IF NOT EXISTS jobs (n integer)")
        database.execute("CREATE SEQUENCE IF NOT EXISTS numbers")
    if error is None:
        assert asked(postgres_url, query) == value
    else:
        with pytest.raises(InvalidPlantResponse, match=error):
            asked(postgres_url, query)
    with psycopg.connect(postgres_url) as database:
        assert database.execute("SELECT count(*) FROM jobs").fetchone() == (0,)


def test_a_file_is_one_of_bytes_where_its_links_lead(tmp_path, monkeypatch):
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    allowed.mkdir()
    other.mkdir()
    (other / "secret").write_text("1")
    (allowed / "n").write_text("2")
    (allowed / "inner").symlink_to(allowed / "n")
    (allowed / "out").symlink_to(other)
    os.mkfifo(allowed / "pipe")
    monkeypatch.setenv("WEIR_PLANT_FILES", str(allowed))

    def said(name):
        plant = DeclaredPlant(parse_declaration(SENSOR.replace("{}", f"{{file: {allowed}/{name}}}")), {})
        plant.get_topology()
        plant.close()
        return plant.readings["it"]

    assert said("inner").value == 2.0
    assert "is not a regular file" in str(said("pipe").error)  # the pipe has no writer: waiting for it would never end
    for name in ("out/secret", "../other/secret", "inner/../../other/secret"):
        with pytest.raises(Forbidden, match="must be a file in a folder"):
            said(name)


def command(monkeypatch, allowed, arguments):
    monkeypatch.setenv("WEIR_PLANT_COMMANDS", allowed)
    return parse_declaration(
        "name: one\nsensors: {n: {url: 'http://x/n', json: n}}\noperators:\n"
        f"  - {{name: work, tasks: n, maximum: 9, set: {{command: [{', '.join(arguments)}]}}}}\n"
    )


def test_an_option_is_allowed_by_name_or_not_at_all(monkeypatch):
    allowed = "/usr/bin/systemctl start worker@; /usr/bin/scale --to="
    command(monkeypatch, allowed, ["/usr/bin/systemctl", "start", "worker@$tasks", "'worker@9'"])
    command(monkeypatch, allowed, ["/usr/bin/scale", "--to=$tasks"])
    for arguments in (
        ["/usr/bin/systemctl", "start", "worker@$tasks", "--host=root@elsewhere"],
        ["/usr/bin/systemctl", "--host=root@elsewhere", "start", "worker@$tasks"],
        ["/usr/bin/scale", "--to=$tasks", "-f"],
    ):
        with pytest.raises(Forbidden, match="WEIR_PLANT_COMMANDS"):
            command(monkeypatch, allowed, arguments)
    with pytest.raises(BadInput, match=r"command\[1\]: must have \$change after a word"):
        command(monkeypatch, "/usr/bin/scale", ["/usr/bin/scale", "$change", "$tasks"])


def test_a_redirect_is_followed_nowhere():
    asked = []

    def answer(request):
        asked.append(str(request.url))
        where = "http://169.254.169.254/latest" if len(asked) % 2 else "http://127.0.0.1/"
        return httpx.Response(302, headers={"Location": where})

    text = SENSOR.replace("{}", "{url: 'http://x/n', json: n}")
    plant = DeclaredPlant(parse_declaration(text), {}, httpx.MockTransport(answer))
    for _ in range(2):
        plant.get_topology()
        assert "returned status 302 for /n" in str(plant.readings["it"].error)
    assert asked == ["http://x/n"] * 2
    client = PrometheusClient(PlantClient("p", "http://p", transport=httpx.MockTransport(answer)))
    with pytest.raises(InvalidPlantResponse):
        client.query_value("up")


TOO_MUCH = (InvalidPlantResponse, PlantUnavailable)  # whichever comes first
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
PACKED, ENDLESS = b"Content-Encoding: gzip\r\n\r\n", f"more than {MAX_BYTES}|did not end"


@pytest.mark.parametrize(
    ("begin", "part", "pause", "error", "said"),
    [
        (HEAD + b"Content-Length: 100000000\r\n\r\n", b"[" * 65_536, 0.0, TOO_MUCH, ENDLESS),
        (HEAD + b"\r\n", b" " * 65_536, 0.0, TOO_MUCH, ENDLESS),
        (HEAD + b"\r\n", b" ", 0.02, PlantUnavailable, r"0\.3 s"),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n", 0.02, PlantUnavailable, "did not respond within"),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"b" * 60_000 + b"\r\n", 0.0, PlantUnavailable, "can't be reached"),
        (HEAD + PACKED, b"\x1f\x8b" * 100, 0.0, InvalidPlantResponse, "can't be decompressed"),
    ],
    ids=["100 MB", "endless", "drop by drop", "endless headers", "large headers", "packed"],
)
def test_a_prometheus_that_never_ends_is_left(settings, begin, part, pause, error, said):
    settings.WEIR_EGRESS_ALLOW = "127.0.0.0/8"
    ended = threading.Event()
    parts = itertools.takewhile(lambda _: not ended.wait(pause), itertools.repeat(part))
    with answering("http", itertools.chain([begin], parts)) as url:
        client = PlantClient("prometheus", url, timeout_seconds=0.3 if pause else 20.0)
        with pytest.raises(error, match=said):
            PrometheusClient(client).query_value("up")
        ended.set()
        client.close()


@pytest.mark.parametrize("address", ["http://me:word@prometheus", "http://me@prometheus", "http://:w@p/api"])
def test_an_address_with_a_password_is_refused(address):
    for text in (
        f"name: one\nprometheus: '{address}'\nsensors: {{it: {{promql: up}}}}\n",
        SENSOR.replace("{}", f"{{url: '{address}', json: n}}"),
        "name: one\nsensors: {n: {url: 'http://x/n', json: n}}\noperators:\n"
        f"  - {{name: work, tasks: n, maximum: 9, set: {{http: {{url: '{address}/$tasks'}}}}}}\n",
    ):
        with pytest.raises(BadInput, match="without a username or a password"):
            parse_declaration(text)
