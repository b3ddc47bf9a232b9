"""Inputs that ended in 500: a plain form without a reason, text that nothing stores, times at the ends of the
calendar, numbers of 5,000 digits. Each is refused with its field, and changes nothing.
"""

import json

import pytest
from asgiref.testing import ApplicationCommunicator
from django.test import Client

from common.errors import BadInput
from console.api import v1
from console.input.storable import check_row
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import Segment
from tests.console.accounts.route_permissions import ROUTE_PERMISSIONS, address_of, of_api
from tests.console.accounts.things import things as things
from workers.models import Loop

pytestmark = pytest.mark.django_db
DIGITS = "9" * 5_000
NUL = "a\0b"
AWAY = (503,)  # the node of these tests answers nobody
ENDS = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "0001-01-01", "9999-12-31")
FORMS = [door for door in ROUTE_PERMISSIONS if door.startswith("POST ") and not of_api(door)]


@pytest.fixture
def administrator(browsers, control):
    browsers["administrator"].raise_request_exception = False
    return browsers["administrator"]


@pytest.fixture
def token(secrets, control):
    return {"HTTP_AUTHORIZATION": f"Bearer {secrets['administrator']}"}


def refused(answer, *fields):
    """A refusal that names one of the fields."""
    assert 400 <= answer.status_code < 500, answer.status_code
    told = answer.json()
    assert set(told["errors"]) & set(fields), told


def test_a_plain_form_without_anything_in_it_is_no_failure(administrator, things, stored_snapshot):
    for door in FORMS:
        if door != "POST logout/":
            answer = administrator.post(address_of(door.split(" ", 1)[1], things), {})
            assert answer.status_code in AWAY or answer.status_code < 500, door


def test_a_form_with_text_that_no_database_stores_names_the_field(administrator, things):
    for door in FORMS:
        for text in (NUL, f"{NUL}{DIGITS}"):
            address = address_of(door.split(" ", 1)[1], things)
            answer = administrator.post(address, {"reason": text}, HTTP_ACCEPT="application/json")
            assert answer.status_code == 422, door
            refused(answer, "reason")


def test_a_path_with_nul_leads_nowhere(administrator):
    for address in ("/nodes/%00/", "/api/v1/nodes/%00", "/queues/a%00b/", "/control/%00/v1/hold"):
        assert administrator.get(address).status_code == 404, address


def test_a_query_with_nul_names_the_field(administrator):
    for address in ("/ledger/", "/api/v1/ledger", "/audit/", "/nodes/", "/dead-letters/"):
        refused(administrator.get(address, {"queue": NUL}, HTTP_ACCEPT="application/json"), "queue")


@pytest.mark.parametrize("charset", ["utf-7", "rot13", "unicode_escape", "idna", "nothing"])
async def test_a_charset_of_ones_own_decodes_nothing(charset, application):
    scope = {
        "type": "http", "method": "GET", "path": "/ledger/", "query_string": b"text=%5Cud800",
        "headers": [(b"host", b"localhost"), (b"content-type", f"text/plain; charset={charset}".encode())],
    }  # fmt: skip
    wire = ApplicationCommunicator(application, scope)
    await wire.send_input({"type": "http.request", "body": b""})
    assert (await wire.receive_output(10))["status"] == 415


@pytest.mark.parametrize("header", ["HTTP_USER_AGENT", "HTTP_AUTHORIZATION", "HTTP_IDEMPOTENCY_KEY"])
def test_a_header_with_nul_is_refused(header, administrator):
    assert administrator.get("/api/v1/loops", **{header: NUL}).status_code == 400


def test_a_cookie_with_a_quoted_nul_is_refused(control):
    browser = Client(raise_request_exception=False)
    assert browser.get("/api/v1/loops", HTTP_COOKIE='sessionid="\\000"').status_code == 400


HOSTILE = {
    "half a surrogate pair": '{"name": "a", "value": 1, "minutes": 1, "reason": "\\ud800"}',
    "NUL": '{"name": "a", "value": 1, "minutes": 1, "reason": "\\u0000"}',
    "5,000 digits": f'{{"name": "a", "value": 1, "minutes": 1, "reason": {DIGITS}}}',
    "more than 64 bits": '{"name": "a", "value": 1, "minutes": 1, "reason": 18446744073709551616}',
    "infinity": '{"name": "a", "value": 1, "minutes": 1, "reason": 1e999}',
    "NaN": '{"name": "a", "value": 1, "minutes": 1, "reason": NaN}',
    "too deep": '{"name": "a", "value": 1, "minutes": 1, "reason": ' + '{"a":' * 500 + "1" + "}" * 501,
    "far too deep": '{"reason": ' + "[" * 100_000 + "]" * 100_000 + "}",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_json_that_holds_what_nothing_takes_names_the_field(case, token):
    answer = Client().post("/api/v1/overrides", HOSTILE[case].encode(), "application/json", **token)
    assert answer.status_code == 422
    refused(answer, "reason", "body")


PAGES = ("/ledger/", "/audit/", "/timeline/", "/dead-letters/", "/alerts/review/", "/")


@pytest.mark.sweep(2)
@pytest.mark.parametrize("at", ENDS)
def test_a_page_about_the_ends_of_the_calendar_is_no_failure(at, administrator, stored_snapshot):
    for address in PAGES:
        for name in ("from", "to", "at"):
            assert administrator.get(address, {name: at}).status_code < 500, (address, name)


@pytest.mark.parametrize("at", ENDS)
def test_the_api_refuses_the_ends_of_the_calendar(at, administrator, token):
    for address in ("/api/v1/ledger", "/api/v1/audit", "/api/v1/dead-letters", "/api/v1/alerts/review"):
        answer = Client().get(address, {"from": at}, **token)
        assert answer.status_code == 422
        refused(answer, "from", "wanted.from")
    refused(Client().get("/api/v1/snapshot", {"at": at}, **token), "at")
    mark = {"title": "a test", "at": at}
    refused(Client().post("/api/v1/marks", json.dumps(mark), "application/json", **token), "at")
    refused(administrator.post("/timeline/marks", mark, HTTP_ACCEPT="application/json"), "at")


NUMBERS = {
    "/lab/compare": "id", "/ledger/": "before", "/alerts/silences/": "alert",
    "/pipeline/new/declaration/": "version", "/plans/": "page", "/settings/plant/": "loop",
    "/api/v1/ledger": "before", "/api/v1/audit": "rows", "/api/v1/decisions": "from", "/api/v1/history": "to",
}  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.parametrize("number", [DIGITS, "9" * 25, "-1", "\u00b2", "\u0663", "1e400", "nan"])
def test_a_number_that_is_none_is_no_failure(number, administrator, stored_snapshot):
    for address, field in NUMBERS.items():
        assert administrator.get(address, {field: number}).status_code < 500, address


@pytest.mark.parametrize("number", [DIGITS, "9" * 25])
def test_an_id_beyond_64_bits_is_no_row(number, administrator):
    for rows in ("loops", "plans", "alerts", "runs", "ledger"):
        assert administrator.get(f"/api/v1/{rows}/{number}").status_code == 422
        assert administrator.get(f"/{rows}/{number}/").status_code == 404


def test_a_dead_letter_of_an_id_beyond_64_bits_leaves_those_before_it_as_they_are(administrator, token, poisoned):
    place = DeadLetters(Segment(poisoned["n1"].client(), "alert"))
    (letter,) = place.read()
    address = f"alert/n1/{2**64}-0"
    assert Client().get(f"/api/v1/dead-letters/{address}", **token).status_code == 422
    assert administrator.get(f"/dead-letters/{address}/").status_code < 500
    names = [f"alert/n1/{letter.dead_id}/{letter.digest}", f"{address}/x"]
    body = json.dumps({"letters": names, "reason": "a test"})
    refused(Client().post("/api/v1/dead-letters/requeue", body, "application/json", **token), "letter")
    assert place.read() == [letter]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (Loop(name="x" * 999, law="worker_rate"), "name"),
        (Loop(name=NUL, law="worker_rate"), "name"),
        (Loop(name="x", law="worker_rate", interval_seconds=float("inf")), "interval_seconds"),
    ],
)
def test_a_row_that_a_column_cant_hold_is_not_written(row, field):
    with pytest.raises(BadInput) as refusal:
        check_row(type(row), row)
    assert refusal.value.field == field


def test_every_number_in_an_address_of_the_api_has_its_range():
    """So that a new endpoint takes its ids as the others do."""
    for path, operations in v1.api.get_openapi_schema()["paths"].items():
        for operation in operations.values():
            for each in operation.get("parameters", []):
                if each["in"] == "path" and each["schema"].get("type") == "integer":
                    assert each["schema"]["exclusiveMaximum"] == 2**63, (path, each["name"])
