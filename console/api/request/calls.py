"""Calls of the API by Weir's own programs: in this process as an actor, or over HTTP at another console."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from io import BytesIO
from typing import Any
from urllib.parse import unquote, urlencode

import httpx
import orjson
from django.core.handlers.wsgi import WSGIRequest
from django.urls import resolve

from common.errors import BadInput
from console.accounts.access import Actor
from console.audit import refusals
from console.input.boundary import Boundary
from console.input.storable import UNSTORABLE, is_plain
from console.web.web_request import get_web_request


def call_view(method: str, path: str, content: bytes, actor: Actor) -> tuple[int, Iterable[bytes]]:
    """Return (status, pieces of the body) of the view at a path with its query."""
    address, _, query = path.partition("?")
    address = unquote(address)  # as a server does, before Django sees it
    request = WSGIRequest(
        {
            "REQUEST_METHOD": method,
            "PATH_INFO": address.encode().decode("latin1"),
            "QUERY_STRING": query,
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(content)),
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "wsgi.input": BytesIO(content),
            "wsgi.url_scheme": "http",
        }
    )
    noted = get_web_request(request)
    noted.request_id, noted.weir_local_actor = actor.request_id, actor
    view, positional, places = resolve(request.path_info)
    with refusals.collect_refusals(f"{method} {address}"):
        # As before every request: text that no database stores is rejected with its field.
        response: Any = Boundary(view).process_request(request) or view(request, *positional, **places)
    return response.status_code, response if response.streaming else [response.content]


TIMEOUT_SECONDS = 60.0
MAX_BYTES = 64_000_000  # of an answer, decompressed
WHOLE_ADDRESS = "must be the full address of a console, such as https://weir.example.org."
MAX_REFUSAL = 1_000  # characters
PACKED = "gzip"  # at most a thousandfold; compressed twice, a few bytes could exceed the memory


class RequestRejected(Exception):  # noqa: N818 - the API has answered, with a no
    """The API rejected the request or did not answer; the message names the field."""


class NoAnswer(RequestRejected):
    """There was no answer: whether a change was made is unknown."""


class Calls(ABC):
    """The API for one of its users."""

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> Any:
        """Return the answer as a document; query values that are None or empty are left out.

        key: of a change, so that a repetition has no further effect. Raises `RequestRejected`, and `NoAnswer` without
        an answer.
        """
        given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        for name, value in given.items():
            if not all(is_plain(str(item)) for item in (value if isinstance(value, list) else [value])):
                raise RequestRejected(f"{name}: {UNSTORABLE}")
        address = f"{path}?{urlencode(given, doseq=True)}" if given else path
        content = b"" if body is None else json.dumps(body).encode()
        status, pieces = self.send(method, address, content, key)
        return read(status, b"".join(pieces))

    @abstractmethod
    def get_unix_time(self) -> float:
        """Return the console's Unix time at its last answer: not later than the real time, and at most 1 s earlier."""

    @abstractmethod
    def send(self, method: str, address: str, content: bytes, key: str = "") -> tuple[int, Iterable[bytes]]:
        """Return the status and the pieces of the answer's body. Raises `NoAnswer` if there is none."""


class InProcess(Calls):
    """The API of this process for one actor; each call is answered, so no key is needed."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def get_unix_time(self) -> float:
        return time.time()

    def send(self, method: str, address: str, content: bytes, key: str = "") -> tuple[int, Iterable[bytes]]:
        return call_view(method, address, content, self._actor)


class RemoteConsole(Calls):
    """The API of another console, with a token, which is sent nowhere else: a redirect is rejected.

    An answer is limited: to MAX_BYTES, and timeout_seconds from its first byte to its last; except exports, which are
    as long as their contents.
    """

    def __init__(self, url: str, token: str, timeout_seconds: float = TIMEOUT_SECONDS, has_end: bool = True) -> None:
        """Connect to a console. Raises `BadInput` that names url or token."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept-Encoding": PACKED}
        if not token.isascii() or not token.isprintable():
            raise BadInput("token", "must have only printable ASCII characters.")
        try:
            self._client = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=timeout_seconds)
        except httpx.InvalidURL:
            raise BadInput("url", WHOLE_ADDRESS) from None
        if self._client.base_url.scheme not in ("http", "https") or not self._client.base_url.host:
            raise BadInput("url", WHOLE_ADDRESS)
        self._timeout_seconds, self._has_end, self._answered_at = timeout_seconds, has_end, 0.0

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def get_unix_time(self) -> float:
        return self._answered_at

    def send(self, method: str, address: str, content: bytes, key: str = "") -> tuple[int, Iterable[bytes]]:
        headers = {"Idempotency-Key": key} if key else {}
        try:
            with self._client.stream(method, address, content=content, headers=headers) as answer:
                pieces = self._read_body_pieces(answer)
        except httpx.HTTPError as error:
            raise NoAnswer(f"The console is not responding ({type(error).__name__}). Try again.") from None
        self._answered_at = read_response_date(answer)
        return answer.status_code, [b"".join(pieces)]

    def _read_body_pieces(self, answer: httpx.Response) -> list[bytes]:
        """Return its whole body. Raises `NoAnswer` if it has no end: the request may have been carried out."""
        if answer.headers.get("Content-Encoding", PACKED) not in (PACKED, "identity"):
            raise NoAnswer("The console's response uses a compression that was not requested.")
        began, size, pieces = time.monotonic(), 0, []
        for piece in answer.iter_bytes():
            size += len(piece)
            pieces.append(piece)
            if self._has_end and size > MAX_BYTES:
                raise NoAnswer(f"The console's response is longer than {MAX_BYTES // 1_000_000} MB.")
            if self._has_end and time.monotonic() - began > self._timeout_seconds:
                raise NoAnswer(f"The console's response took longer than {self._timeout_seconds:g} s.")
        return pieces


def read_response_date(answer: httpx.Response) -> float:
    """Return when the answer was made, by the server's clock in whole seconds; without a date, by the local clock."""
    try:
        return parsedate_to_datetime(answer.headers["Date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return time.time()


def read(status: int, content: bytes) -> Any:
    """Return the document of an answer.

    Raises `RequestRejected` with the message of a rejection; `NoAnswer` if the rejection is not the console's: a proxy
    does not know what the console did.
    """
    if status >= 500 and not _parse_errors(content):
        raise NoAnswer(format_refusal_message(status, content))
    if status >= 300:
        raise RequestRejected(format_refusal_message(status, content))
    try:
        return orjson.loads(content)
    except ValueError:
        raise RequestRejected(f"The console returned {status} without JSON.") from None


def format_refusal_message(status: int, content: bytes) -> str:
    """Return the message of an unsuccessful answer, by field; a short sentence if it is not from a console."""
    if status < 400:
        return f"The console returned {status} (redirect). Use the address that it redirects to."
    errors = _parse_errors(content)
    if errors is None:
        return f"The console returned {status} without JSON."
    if not errors:
        return f"The console returned {status}."
    said = (
        f"{field}: {' '.join(map(str, messages)) if isinstance(messages, list) else messages}"
        for field, messages in errors.items()
    )
    return " ".join(said)[:MAX_REFUSAL]


def _parse_errors(content: bytes) -> dict[str, Any] | None:
    """Return the errors of a console's rejection, by field; empty if it is not from a console. None: it is no JSON."""
    try:
        document = orjson.loads(content)
    except ValueError:
        return None
    errors = document.get("errors") if isinstance(document, dict) else None
    return errors if isinstance(errors, dict) else {}
