"""What a message says of its task, and what it can't make Weir show or decode."""

from datetime import UTC, datetime

import pytest

from workers.plants.foreign.celery_app.message_contents import describe_message
from workers.plants.foreign.celery_app.queue_messages import decode_body, parse_message, readdress
from workers.plants.foreign.redaction import SHOWN
from workers.plants.plant import InvalidPlantResponse

JSON = "application/json"


def describe(headers, body=b"", properties=None, content_type=JSON):
    return describe_message(headers, properties or {}, content_type, body, SHOWN)


def test_a_message_of_protocol_1_has_its_task_in_the_body():
    seen = describe({}, b'{"task": "shop.pay", "id": "a", "args": [4711], "kwargs": {"token": "x"}}')
    assert (seen.task, seen.id, seen.args) == ("shop.pay", "a", "[4711]")
    assert "'x'" not in seen.kwargs


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"3", b"[" * 100_000, b"\xff"])
def test_any_body_is_described(body):
    seen = describe({"task": "shop.pay", "id": "a"}, body)
    assert (seen.task, seen.args, seen.size_bytes) == ("shop.pay", "", len(body))


@pytest.mark.parametrize("value", [None, 7, ["a"], {"a": 1}, "x" * 5_000])
def test_a_name_that_is_none_is_not_shown(value):
    seen = describe({"task": value, "id": value, "x-death": value})
    assert (seen.task, seen.id, seen.origin) == ("", "", "")


def test_the_time_is_that_of_the_broker_or_of_the_producer():
    at = datetime(2026, 11, 30, tzinfo=UTC)
    assert describe({"timestamp_in_ms": 1_500}).sent_at == 1.5
    assert describe({}, properties={"timestamp": at}).sent_at == at.timestamp()
    assert describe({"timestamp_in_ms": "soon"}).sent_at is None


@pytest.mark.parametrize(
    "text", [b"x", b"[]", b"{}", b'{"properties": {}}', b'{"properties": 1, "body": "a"}', b"\xff"]
)
def test_an_entry_that_is_no_message_is_refused(text):
    with pytest.raises(InvalidPlantResponse, match="not a message of Celery"):
        parse_message("shop", "orders:1", text)


def test_a_readdressed_message_differs_only_in_its_queue():
    text = b'{"body": "W10=", "headers": {}, "properties": {"priority": 3, "delivery_info": {"exchange": "a", "x": 1}}}'
    before, after = parse_message("shop", "pay", text), parse_message("shop", "pay", readdress(text, "slow"))
    assert after["properties"].pop("delivery_info") == {"exchange": "", "routing_key": "slow", "x": 1}
    del before["properties"]["delivery_info"]
    assert before == after


@pytest.mark.parametrize(("body", "bytes_"), [("W10=", b"[]"), ("not base64!", b"not base64!")])
def test_a_body_is_decoded_if_its_encoding_is_known(body, bytes_):
    assert decode_body({"body": body, "properties": {"body_encoding": "base64"}}) == bytes_
