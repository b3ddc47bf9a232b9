"""Whatever is sent to the console, whoever sends it: no answer of 500, and no request that hangs.

The short form runs in CI. The long form, WEIR_FUZZ_REQUESTS (100,000 by default), runs on SQLite and on a real
PostgreSQL, and prints what it counted.
"""

import gzip
import json
import os
import subprocess
import sys
from random import Random
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import orjson
import pyarrow as pa
import pytest
import requests
import schemathesis
import yaml
from django.db import connection
from django.test import Client
from django.utils import timezone
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as examples_of
from hypothesis import strategies as st
from schemathesis import GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.core import NotSet
from schemathesis.specs.openapi import checks as of_document

from queues import keys
from queues.models import Node
from tests.console.accounts.route_permissions import (
    API_BODIES,
    OPERATIONS,
    QUERY,
    ROUTE_PERMISSIONS,
    address_of,
    of_api,
)
from tests.console.accounts.things import things as things
from tests.console.api.test_api import publishing as publishing
from tests.console.pipeline_sample import DECLARATION
from tests.console.served import ROOT
from tests.postgres import postgres_url as postgres_url
from tests.security.requests.fuzzing import (
    Caller,
    Page,
    Tally,
    caller_for,
    callers_of,
    changed,
    fields_for,
    pages,
    queries,
    send,
    text_of,
    texts,
)
from tests.servers import Server

pytestmark = pytest.mark.django_db
SHORT, LONG = 100, int(os.environ.get("WEIR_FUZZ_REQUESTS", "10100"))
SEED = int(os.environ.get("WEIR_FUZZ_SEED", "0"))
CHECKS = [
    not_a_server_error,
    of_document.status_code_conformance,
    of_document.content_type_conformance,
    of_document.response_schema_conformance,
]
METHODS = ("get", "post", "post", "put", "delete", "head", "options")


def quietly(examples: int) -> Any:
    """So many examples, whatever they cost and however seldom one is good; the same each time for a seed."""
    return examples_of(
        max_examples=max(1, examples),
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )


@pytest.fixture
def callers(browsers, secrets) -> list[Caller]:
    return callers_of(browsers, secrets)


def fuzz_pages(tally: Tally, callers: list[Caller], things: dict[str, Any], requests: int) -> None:
    """Every page: queries, forms sent by a script and by a plain form, and addresses with hostile parts."""
    every = pages()

    @seed(SEED)
    @quietly(requests)
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        page: Page = data.draw(st.sampled_from(every))
        caller: Caller = data.draw(st.sampled_from(callers))
        method = data.draw(st.sampled_from(METHODS))
        address = page.address(things, data.draw(st.lists(st.one_of(st.just(""), texts), max_size=2)))
        given = data.draw(queries(page))
        headers = {"accept": "application/json"} if data.draw(st.booleans()) else {}

        def work(browser: Any) -> Any:
            if method in ("get", "head"):
                return getattr(browser, method)(address, given, headers=headers, **caller.headers)
            form = {"data": given} if method == "post" else {}
            return getattr(browser, method)(address, headers=headers, **form, **caller.headers)

        send(tally, caller, f"{method} {page.route}", work)

    ask()


def fuzz_api(tally: Tally, callers: list[Caller], things: dict[str, Any], requests: int) -> None:
    """Every operation of the OpenAPI document, with what fits it and what does not, on rows that are there
    and on others; its answer is one that the document states.
    """
    # A WSGI request would close the connection of the test, which on PostgreSQL ends its transaction.
    schema = schemathesis.openapi.from_dict(Client().get("/api/schema").json())
    # Bodies of events, which schemathesis has no serializer for, are the part of `fuzz_bodies`.
    every = [found.ok() for found in schema.get_all_operations()]
    operations = [each for each in every if not each.path.endswith("/events")]
    for place, operation in enumerate(operations):
        there = {name: value for name, value in known(things).items() if f"{{{name}}}" in operation.path}
        cases = [
            operation.as_strategy(generation_mode=mode, path_parameters=chosen)
            for mode in GenerationMode
            for chosen in ([None, there] if there else [None])
        ]
        _ask_operation(tally, callers, st.one_of(cases), requests // len(operations), SEED + place)


def known(things: dict[str, Any]) -> dict[str, Any]:
    """A value for each place of the API's addresses."""
    usual = {"plant": "main", "name": "performance", "operator": "hosts", "criterion": "x"}
    return {**usual, **{place.strip("<>"): value for place, value in things.items() if ":" not in place}}


def _ask_operation(tally: Tally, callers: list[Caller], cases: Any, examples: int, begin: int) -> None:
    @seed(begin)
    @quietly(examples)
    @given(cases, st.sampled_from(callers))
    def ask(case: Any, caller: Caller) -> None:
        query = urlencode(case.query or {}, doseq=True)
        address = f"{case.formatted_path}?{query}"
        kind, body = case.media_type or "application/json", body_of(case)

        def work(browser: Any) -> Any:
            return browser.generic(case.method, address, body, kind, **caller.headers)

        answer = send(tally, caller, f"{case.method} {case.operation.path}", work)
        # A 503 that is meant (`send` lets no other pass) is in the document, too.
        checks = [each for each in CHECKS if answer.status_code != 503 or each is not not_a_server_error]
        request = requests.Request(case.method, f"http://testserver{address}", data=body).prepare()
        case.validate_response(told(answer, request), checks=checks)

    ask()


def body_of(case: Any) -> bytes:
    if isinstance(case.body, bytes):
        return case.body
    if case.media_type != "application/json" or isinstance(case.body, NotSet):
        return b"" if isinstance(case.body, NotSet) else str(case.body).encode("utf-8", "replace")
    return json.dumps(case.body).encode()


def told(answer: Any, request: requests.PreparedRequest) -> Response:
    """Django's answer as schemathesis reads it."""
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    headers = {name: [value] for name, value in answer.items()}
    return Response(answer.status_code, headers, content, request, 0.0, verify=False)


LINE = st.dictionaries(
    st.sampled_from(("id", "time", "type", "key", "value", "attributes", "other")),
    st.one_of(texts, st.integers(), st.floats(), st.none(), st.lists(st.integers(), max_size=2)),
    max_size=5,
)
COLUMN = st.one_of(
    st.lists(st.one_of(st.none(), st.text(max_size=9)), min_size=2, max_size=2).map(
        lambda rows: pa.array(rows, pa.string())
    ),
    st.lists(st.one_of(st.none(), st.binary(max_size=9)), min_size=2, max_size=2).map(
        lambda rows: pa.array(rows, pa.binary())
    ),
    st.lists(st.floats(), min_size=2, max_size=2).map(pa.array),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2).map(lambda rows: pa.array(rows, pa.int64())),
    st.just(pa.array([{"a": 1}, None])),
    st.just(pa.array(["a", "b"]).dictionary_encode()),
    st.just(pa.array([-(2**62), 2**62], pa.timestamp("us", "UTC"))),
)


@st.composite
def arrows(draw: Any) -> bytes:
    """An Arrow stream of odd columns, sometimes broken off."""
    names = st.sampled_from(("id", "time", "type", "key", "value", "attributes", "other"))
    columns = draw(st.dictionaries(names, COLUMN, min_size=1, max_size=4))
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    sink = pa.BufferOutputStream()
    packed = draw(st.sampled_from((None, "lz4", "zstd")))
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=packed)) as stream:
        stream.write_batch(batch)
    body = bytearray(sink.getvalue().to_pybytes())
    for place in draw(st.lists(st.integers(0, len(body) - 1), max_size=3)):
        body[place] ^= draw(st.integers(1, 255))
    return bytes(body[: draw(st.one_of(st.just(len(body)), st.integers(0, len(body))))])


def json_lines(lines: list[dict[str, Any]]) -> bytes:
    return "\n".join(json.dumps(line) for line in lines).encode("utf-8", "surrogatepass")


BODIES = st.one_of(
    st.tuples(st.just("application/x-ndjson"), st.lists(LINE, max_size=4).map(json_lines)),
    st.tuples(st.just("application/x-ndjson"), st.binary(max_size=60)),
    st.tuples(st.just("application/vnd.apache.arrow.stream"), arrows()),
    st.tuples(texts.filter(str.isprintable), st.binary(max_size=30)),
)


def fuzz_bodies(tally: Tally, callers: list[Caller], things: dict[str, Any], requests: int) -> None:
    """Bodies of events: JSON lines and Arrow streams, packed, broken, mistyped."""
    may = [each for each in callers if each.name in ("token:producer", "token:operator", "operator")]

    @seed(SEED)
    @quietly(requests)
    @given(BODIES, st.sampled_from(may), st.sampled_from(("", "?strict=1")), st.booleans())
    def publish(body: tuple[str, bytes], caller: Caller, query: str, packed: bool) -> None:
        kind, sent = body[0], gzip.compress(body[1]) if packed else body[1]

        def work(browser: Any) -> Any:
            return browser.post(f"/api/v1/queues/alert/events{query}", sent, content_type=kind, **caller.headers)

        send(tally, caller, "POST /api/v1/queues/{queue}/events", work)

    publish()


DECLARED = st.recursive(
    st.one_of(texts, st.integers(), st.floats(), st.booleans(), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(("name", "queues", "rules", "operators", "patterns")), inner, max_size=3),
    ),
    max_leaves=12,
)
PARTS = (
    "name", "queues", "sink", "sinks", "replicas", "key", "operators", "rules", "monitored", "criteria",
    "patterns", "parallelism",
)  # fmt: skip


@st.composite
def declarations(draw: Any) -> str:
    """A declaration that is good, with one or two of its parts in another's place; or any text."""
    if draw(st.integers(0, 9)) == 0:
        return str(draw(texts))
    declared = yaml.safe_load(DECLARATION)
    places = (declared, declared["operators"][0], declared["operators"][0]["patterns"][0])
    for _ in range(draw(st.integers(1, 2))):
        where = draw(st.sampled_from(places))
        where[draw(st.sampled_from((*where, *PARTS)))] = draw(DECLARED)
    return yaml.safe_dump(declared, allow_unicode=True)


def fuzz_declarations(tally: Tally, callers: list[Caller], things: dict[str, Any], requests: int) -> None:
    """Declarations of applications, over the API and from the page."""
    may = [each for each in callers if each.name in ("operator", "token:operator")]

    @seed(SEED)
    @quietly(requests)
    @given(declarations(), st.sampled_from(may))
    def declare(text: str, caller: Caller) -> None:
        def work(browser: Any) -> Any:
            posted = {"text": text, "reason": "a test"}
            if caller.headers:
                return browser.post("/api/v1/applications", posted, "application/json", **caller.headers)
            return browser.post("/pipeline/performance/declare", posted)

        send(tally, caller, "POST declaration", work)

    declare()


def throw_at_pages(tally: Tally, callers: list[Caller], things: dict[str, Any], requests: int) -> None:
    """As `fuzz_pages`, by a die; most forms are sent as forms."""
    chance, every = Random(SEED), pages()
    for _ in range(requests):
        page = chance.choice(every)
        usual = "post" if f"POST {page.route}" in ROUTE_PERMISSIONS else "get"
        method = usual if chance.random() < 0.85 else chance.choice(METHODS)
        odd = [text_of(chance) if chance.random() < 0.1 else "" for _ in range(3)]
        address, fields = page.address(things, odd), fields_for(chance, page)
        headers = {"accept": "application/json"} if chance.random() < 0.6 else {}
        caller = caller_for(chance, callers, is_page=True)
        send(tally, caller, f"{method} {page.route}", asking(method, address, fields, headers, caller))


def asking(method: str, address: str, fields: Any, headers: Any, caller: Caller) -> Any:
    def work(browser: Any) -> Any:
        given = {"data": fields} if method in ("get", "head", "post") else {}
        return getattr(browser, method)(address, headers=headers, **given, **caller.headers)

    return work


def throw_at_api(tally: Tally, callers: list[Caller], things: dict[str, Any], requests: int) -> None:
    """Every operation with a body that is good, but for some of it, and with odd values in its address."""
    chance = Random(SEED)
    doors = [door for door in ROUTE_PERMISSIONS if of_api(door)]
    for _ in range(requests):
        door = chance.choice(doors)
        method, route = door.split(" ", 1)
        address = address_of(route, things)
        if chance.random() < 0.15:
            parts = address.split("/")
            parts[chance.randrange(3, max(4, len(parts))) if len(parts) > 3 else -1] = quote(text_of(chance), safe="")
            address = "/".join(parts)
        query = query_of(chance, door, route)
        caller = caller_for(chance, callers, is_page=False)
        send(tally, caller, door, requesting(chance, method, f"{address}?{query}", API_BODIES.get(door), caller))


def query_of(chance: Random, door: str, route: str) -> str:
    usual = parse_qsl(OPERATIONS.get(route.rpartition("/")[2], "?")[1:])
    given = dict(usual) | {name: str(value) for name, value in QUERY.get(door, {}).items()}
    if chance.random() < 0.6:
        names = (
            *given,
            "from",
            "to",
            "rows",
            "before",
            "after",
            "at",
            "state",
            "text",
            "hours",
            "set",
            "points",
            "format",
        )
        for _ in range(chance.randint(1, 3)):
            given[chance.choice(names)] = text_of(chance)
    return urlencode(given)


def requesting(chance: Random, method: str, address: str, body: Any, caller: Caller) -> Any:
    sent = changed(chance, body or {})
    kind = "application/json" if chance.random() < 0.95 else chance.choice(("x", "text/plain", "multipart/form-data"))

    def work(browser: Any) -> Any:
        if method == "GET":
            return browser.get(address, **caller.headers)
        return browser.post(address, sent, content_type=kind, **caller.headers)

    return work


# Each part with its per cent of the requests: most by a die, some by Hypothesis and schemathesis, which are
# ten times as slow.
PARTS = {
    "API by a die": (throw_at_api, 45),
    "pages by a die": (throw_at_pages, 35),
    "pages": (fuzz_pages, 5),
    "API": (fuzz_api, 5),
    "bodies": (fuzz_bodies, 5),
    "declarations": (fuzz_declarations, 5),
}


@pytest.fixture
def plant(things, nodes: dict[str, Server], plant_topology, control, snapshot, publishing, settings, tmp_path):
    """One of everything that an address may name, on servers that answer; a snapshot that stays young."""
    settings.WEIR_DATA = tmp_path
    Node.objects.update(url=nodes["n1"].url)
    snapshot["at"] = timezone.now().timestamp() + 86_400
    control.set(keys.SNAPSHOT, orjson.dumps(snapshot))
    return things


def test_nothing_that_is_sent_is_answered_with_a_failure(callers, plant):
    tally = Tally()
    for fuzz, percent in PARTS.values():
        fuzz(tally, callers, plant, SHORT * percent // 100)
    assert tally.requests >= SHORT * 0.9, tally.report("the short form")


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("part", PARTS)
def test_ten_thousand_requests_have_no_failure(part, callers, plant):
    """On the database that DATABASE_URL names: SQLite when it names none. Parts share nothing."""
    tally, (fuzz, percent) = Tally(), PARTS[part]
    try:
        fuzz(tally, callers, plant, LONG * percent // 100)
    finally:
        sys.stderr.write(tally.report(f"{connection.vendor}, {part}") + "\n")


@pytest.mark.slow
@pytest.mark.timeout(7_300)
def test_two_thousand_requests_have_no_failure_on_postgresql(postgres_url):
    """Only what a database answers may differ from the test above."""
    this = f"{__file__}::{test_ten_thousand_requests_have_no_failure.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", this]
    requests = os.environ.get("WEIR_FUZZ_REQUESTS", "2020")
    environment = {**os.environ, "DATABASE_URL": postgres_url, "WEIR_FUZZ_REQUESTS": requests}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    sys.stderr.write("\n".join(line for line in done.stderr.splitlines() if " requests in " in line) + "\n")
    assert done.returncode == 0, done.stdout[:8_000] + done.stdout[-2_000:]
