"""Whatever is sent to the console, whoever sends it: no answer of 500, and no request that hangs.

The short form runs in CI. The long form, WEIR_FUZZ_REQUESTS (100,000 by default), runs on SQLite and on a real
PostgreSQL, and prints what it counted.
"""

import json
import os
import sys
from random import Random
from urllib.parse import urlencode

import orjson
import pytest
import requests
import schemathesis
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
from tests.console.accounts.route_permissions import ROUTE_PERMISSIONS
from tests.console.accounts.things import things as things
from tests.console.api.test_api import publishing as publishing
from tests.security.requests.fuzzing import Tally, caller_for, callers_of, fields_for, pages, send, text_of

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


def quietly(examples):
    """So many examples, whatever they cost and however seldom one is good; the same each time for a seed."""
    return examples_of(
        max_examples=max(1, examples), deadline=None, database=None, derandomize=False,
        suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink), report_multiple_bugs=False,
    )  # fmt: skip


@pytest.fixture
def callers(browsers, secrets):
    return callers_of(browsers, secrets)


def fuzz_api(tally, callers, things, requests):
    """Every operation of the OpenAPI document, with what fits it and what does not, on rows that are there
    and on others; its answer is one that the document states.
    """
    # A WSGI request would close the connection of the test, which on PostgreSQL ends its transaction.
    schema = schemathesis.openapi.from_dict(Client().get("/api/schema").json())
    # Schemathesis has no serializer for bodies of events: test_arrow_bodies.py and test_same_events.py.
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


def known(things):
    """A value for each place of the API's addresses."""
    usual = {"plant": "main", "name": "performance", "operator": "hosts", "criterion": "x"}
    return {**usual, **{place.strip("<>"): value for place, value in things.items() if ":" not in place}}


def _ask_operation(tally, callers, cases, examples, begin):
    @seed(begin)
    @quietly(examples)
    @given(cases, st.sampled_from(callers))
    def ask(case, caller):
        query = urlencode(case.query or {}, doseq=True)
        address = f"{case.formatted_path}?{query}"
        kind, body = case.media_type or "application/json", body_of(case)

        def work(browser):
            return browser.generic(case.method, address, body, kind, **caller.headers)

        answer = send(tally, caller, f"{case.method} {case.operation.path}", work)
        # A 503 that is meant (`send` lets no other pass) is in the document, too.
        checks = [each for each in CHECKS if answer.status_code != 503 or each is not not_a_server_error]
        request = requests.Request(case.method, f"http://testserver{address}", data=body).prepare()
        case.validate_response(told(answer, request), checks=checks)

    ask()


def body_of(case):
    if isinstance(case.body, bytes):
        return case.body
    if case.media_type != "application/json" or isinstance(case.body, NotSet):
        return b"" if isinstance(case.body, NotSet) else str(case.body).encode("utf-8", "replace")
    return json.dumps(case.body).encode()


def told(answer, request):
    """Django's answer as schemathesis reads it."""
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    headers = {name: [value] for name, value in answer.items()}
    return Response(answer.status_code, headers, content, request, 0.0, verify=False)


def throw_at_pages(tally, callers, things, requests):
    """Every page: queries, forms sent by a script and by a plain form, and addresses with hostile parts."""
    chance, every = Random(SEED), pages()
    for _ in range(requests):
        page = chance.choice(every)
        usual = "post" if f"POST {page.route}" in ROUTE_PERMISSIONS else "get"
        method = usual if chance.random() < 0.85 else chance.choice(METHODS)
        odd = [text_of(chance) if chance.random() < 0.1 else "" for _ in range(3)]
        address, fields = page.address(things, odd), fields_for(chance, page)
        headers = {"accept": "application/json"} if chance.random() < 0.6 else {}
        caller = caller_for(chance, callers)
        send(tally, caller, f"{method} {page.route}", asking(method, address, fields, headers, caller))


def asking(method, address, fields, headers, caller):
    def work(browser):
        given = {"data": fields} if method in ("get", "head", "post") else {}
        return getattr(browser, method)(address, headers=headers, **given, **caller.headers)

    return work


# Each part with its per cent of the requests: schemathesis is ten times as slow as a die.
PARTS = {"pages": (throw_at_pages, 80), "API": (fuzz_api, 20)}


@pytest.fixture
def plant(things, nodes, plant_topology, control, snapshot, publishing, settings, tmp_path):
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
