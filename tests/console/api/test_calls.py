"""A console elsewhere may be anybody: its answer has an end, is a sentence at most, and gets no token."""

import gzip
import itertools
import socket
import threading
from collections.abc import Callable

import pytest

from common.errors import BadInput
from console.api.request import calls
from console.api.request.calls import NoAnswer, RemoteConsole, RequestRejected

HEAD = b"HTTP/1.1 %s\r\nConnection: close\r\n%sContent-Length: %d\r\n\r\n"
Serve = Callable[..., RemoteConsole]


@pytest.fixture
def answering():
    """A console that answers anything with these pieces, as long as somebody listens."""
    opened = []

    def serve(*pieces, forever=b""):
        listener = socket.create_server(("127.0.0.1", 0))
        opened.append(listener)

        def run():
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                try:
                    for piece in itertools.chain(pieces, itertools.repeat(forever) if forever else ()):
                        connection.sendall(piece)
                except OSError:
                    pass  # who asked has left

        threading.Thread(target=run, daemon=True).start()
        return RemoteConsole(f"http://127.0.0.1:{listener.getsockname()[1]}", "secret", 2.0)

    yield serve
    for each in opened:
        each.close()


def whole(body, status=b"200 OK", headers=b""):
    return HEAD % (status, headers, len(body)) + body


def test_an_answer_without_an_end_is_ended(answering, monkeypatch):
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    monkeypatch.setattr(calls, "MAX_BYTES", 1_000_000)
    with pytest.raises(NoAnswer, match="longer than 1 MB"):
        answering(chunked, forever=b"1000\r\n" + b"[" * 4096 + b"\r\n").ask("GET", "/")
    packed = whole(gzip.compress(b" " * 4_000_000), headers=b"Content-Encoding: gzip\r\n")
    with pytest.raises(NoAnswer, match="longer than 1 MB"):
        answering(packed).ask("GET", "/")


@pytest.mark.parametrize("packing", [b"gzip, gzip", b"br", b"zstd"])
def test_an_answer_packed_as_nobody_asked_is_not_unpacked(answering, packing):
    packed = whole(b"{}", headers=b"Content-Encoding: " + packing + b"\r\n")
    with pytest.raises(NoAnswer, match="a compression that was not requested"):
        answering(packed).ask("GET", "/")


def test_an_answer_that_comes_drop_by_drop_is_ended(answering, monkeypatch):
    seconds = itertools.count()
    monkeypatch.setattr(calls.time, "monotonic", lambda: next(seconds))
    slow = answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", forever=b"1\r\n \r\n")
    with pytest.raises(NoAnswer, match="took longer than 2 s"):
        slow.ask("GET", "/")


def test_a_redirect_gets_no_token_and_is_no_answer(answering):
    with pytest.raises(RequestRejected, match=r"302 \(redirect\)"):
        answering(whole(b'{"snapshot": {}}', b"302 Found", b"Location: http://evil.test/\r\n")).ask("GET", "/")


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (b"200 OK", b"[" * 100_000 + b"]" * 100_000, "without JSON"),
        (b"200 OK", b'{"a": ' + b"9" * 5_000 + b"}", "without JSON"),
        (b"422 No", b'{"errors": ["x"]}', "returned 422"),
        (b"502 Bad", b"<html>", "returned 502 without JSON"),
        (b"422 No", b'{"errors": null}', "returned 422"),
        (b"422 No", b'{"errors": {"hours": [1, null]}}', "hours: 1 None"),
        (b"422 No", b'{"errors": {"hours": "takes less"}}', "hours: takes less"),
    ],
)
def test_whatever_it_says_is_a_sentence(answering, status, body, said):
    with pytest.raises(RequestRejected, match=said) as refused:
        answering(whole(body, status)).ask("GET", "/")
    assert len(str(refused.value)) <= calls.MAX_REFUSAL


@pytest.mark.parametrize(
    ("status", "body", "is_answered"),
    [
        (b"504 Late", b"<html>", False),
        (b"502 Bad", b'{"message": "upstream"}', False),
        (b"503 Busy", b'{"errors": {"node": ["is full"]}}', True),
        (b"404 No", b"<html>", True),
    ],
)
def test_of_what_a_proxy_says_for_the_console_nobody_knows_whether_it_was_done(answering, status, body, is_answered):
    with pytest.raises(RequestRejected) as refused:
        answering(whole(body, status)).ask("POST", "/", body={}, key="a-key-of-it")
    assert isinstance(refused.value, NoAnswer) is not is_answered


@pytest.mark.parametrize("date", [b"soon", b"Mon, 01 Jan 0001 00:00:00 +2359", b"Mon, 01 Jan 99999 00:00:00 GMT"])
def test_a_clock_that_says_nonsense_is_not_believed(answering, date):
    console = answering(whole(b"{}", headers=b"Date: " + date + b"\r\n"))
    assert console.ask("GET", "/") == {} and isinstance(console.get_unix_time(), float)


@pytest.mark.parametrize("url", ["weir.example.org", "ftp://weir.example.org", "http://", "http://a:b:c", "://"])
def test_an_address_that_is_none_is_refused_by_name(url):
    with pytest.raises(BadInput, match="url: must be the full address of a console"):
        RemoteConsole(url, "secret")


def test_a_token_that_would_end_its_header_is_refused_by_name():
    for token in ("a\r\nHost: b", "schlüssel"):
        with pytest.raises(BadInput, match="token: must have only printable ASCII"):
            RemoteConsole("http://127.0.0.1:1", token)
