"""A header that a person writes begins no other header and no other request."""

import httpx
import pytest

from common.errors import BadInput, Forbidden
from tests.workers.samples import delivery_of
from workers.consumer.handler import Options, Place
from workers.consumer.handlers.webhook import Webhook
from workers.consumer.registry import build
from workers.host.egress import check_headers
from workers.plants.foreign.declared.servers import read_login

FIELD = "handler_options.headers"
URL = "https://desk.example/hook"
VALUES = (
    "a\r\nX-Admin: 1",
    "a\nX-Admin: 1",
    "a\r",
    "a\r\n\r\nPOST /admin HTTP/1.1",
    "\na",
    "a\x00b",
    "a\x0bb",
    "a\x7f",
    "a\u0085b",
    "a\u2028b",
    "täglich",
    " a",
    "a ",
    "a\tb",
    "x" * 5_000,
)
NAMES = ("", "X Admin", "X-Admin:", "X-Admin\r\nY", "X-\n", "X-Ä", "X-A\x00", "(X)", "x" * 200)
FRAMING = ("Host", "content-length", "Transfer-Encoding", "CONNECTION", "Upgrade", "TE", "Expect")


@pytest.mark.parametrize("value", VALUES)
def test_a_value_that_no_header_carries_is_refused_without_quoting_it(value, tmp_path):
    with pytest.raises(BadInput) as refused:
        build("webhook", {"url": URL, "headers": {"X-Team": value}}, Place("alert", tmp_path))
    assert refused.value.field == FIELD
    assert "X-Team" in refused.value.message and repr(value) not in refused.value.message


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_no_token_is_refused(name, tmp_path):
    with pytest.raises(BadInput) as refused:
        build("webhook", {"url": URL, "headers": {"X-Good": "1", name: "1"}}, Place("alert", tmp_path))
    assert refused.value.field.startswith(FIELD)


@pytest.mark.parametrize("name", FRAMING)
def test_a_header_that_frames_the_request_is_left_to_the_client(name):
    with pytest.raises(Forbidden, match="Remove it"):
        check_headers({name: "1"}, FIELD)


def test_more_headers_than_a_request_takes_are_refused():
    with pytest.raises(BadInput, match="at most 32 headers, not 33"):
        check_headers({f"X-{number}": "1" for number in range(33)}, FIELD)


def test_good_headers_arrive_as_they_were_written(tmp_path):
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200)

    headers = {"Authorization": "Bearer abc.def==", "X-Team": "night shift, 2nd", "x_under~score": "1"}
    options = Options("webhook", {"url": URL, "headers": headers})
    handler = Webhook(Place("alert", tmp_path), options, httpx.MockTransport(answer), {})
    assert handler.handle([delivery_of(1, "aa" * 16)]).effects == 1
    assert {name: sent[0].headers[name] for name in headers} == headers


@pytest.mark.django_db
@pytest.mark.parametrize("headers", [{"X-Team": "a\r\nX-Admin: 1"}, {"X-A\r\nX-Admin": "1"}])
def test_the_api_refuses_it_and_names_the_field(headers, browsers, control):
    body = {"kind": "jobs", "handler": "webhook", "handler_options": {"url": URL, "headers": headers}}
    browser = browsers["administrator"]
    answer = browser.post("/api/v1/queues/mail/create", {**body, "reason": "a test"}, content_type="application/json")
    assert answer.status_code == 422, answer.content
    assert answer.json()["field"].startswith(FIELD)


@pytest.mark.parametrize("name", ["X-Key\r\nX-Admin", "X-Key\n", "X-Key: 1", "Host", "X-" + "a" * 60])
def test_a_declared_plant_names_no_header_that_begins_another(name):
    with pytest.raises(BadInput) as refused:
        read_login({"secret_environment": "WEIR_SECRET_DESK", "secret_as": name}, "sensors.load")
    assert refused.value.field == "sensors.load.secret_as"
