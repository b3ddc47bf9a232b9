"""How a program of ours reaches the API: in this process as an actor, or over HTTP at a console elsewhere."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode

import httpx

from console.accounts.access import Actor
from console.api.request import in_process

TIMEOUT_SECONDS = 60.0


class Refused(Exception):  # noqa: N818 - the API has answered, with a no
    """The API said no, or did not answer; in a sentence that names the field."""


class Unanswered(Refused):
    """There was no answer: whether a change was made is not known."""


class Calls(ABC):
    """The API, as one who may use it."""

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> Any:
        """What it answers, as a document; of the query what is None or empty is left out. key: of a change,
        so that asking again does nothing twice. Raises Refused, and Unanswered where no answer came.
        """
        given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        address = f"{path}?{urlencode(given, doseq=True)}" if given else path
        content = b"" if body is None else json.dumps(body).encode()
        return read(*self._send(method, address, content, key))

    @abstractmethod
    def now(self) -> float:
        """The console's clock when it answered last, s since 1970: not later than it was, and at most a
        second earlier.
        """

    @abstractmethod
    def _send(self, method: str, address: str, content: bytes, key: str) -> tuple[int, bytes]:
        """The status and the body of the answer. Raises Unanswered where there is none."""


class InProcess(Calls):
    """The API of this process, as one actor; each call is answered, so that no key is needed."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def now(self) -> float:
        return time.time()

    def _send(self, method: str, address: str, content: bytes, key: str) -> tuple[int, bytes]:
        status, pieces = in_process.call(method, address, content, self._actor)
        return status, b"".join(pieces)


class Remote(Calls):
    """The API of a console elsewhere, with a token."""

    def __init__(self, url: str, token: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._client = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=timeout_seconds)
        self._answered_at = 0.0

    def close(self) -> None:
        """Its connections end."""
        self._client.close()

    def now(self) -> float:
        return self._answered_at

    def _send(self, method: str, address: str, content: bytes, key: str) -> tuple[int, bytes]:
        headers = {"Idempotency-Key": key} if key else {}
        try:
            answer = self._client.request(method, address, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise Unanswered(f"The console does not answer ({type(error).__name__}); try again.") from None
        self._answered_at = date_of(answer)
        return answer.status_code, answer.content


def date_of(answer: httpx.Response) -> float:
    """When it was made by the clock of who made it (whole seconds); by ours where it does not say."""
    try:
        return parsedate_to_datetime(answer.headers["Date"]).timestamp()
    except (KeyError, ValueError):
        return time.time()


def read(status: int, content: bytes) -> Any:
    """The document of an answer. Raises Refused with what a refusal says, field by field."""
    try:
        document = json.loads(content)
    except ValueError:
        raise Refused(f"The console answered {status} with what is no JSON.") from None
    if status < 400:
        return document
    errors = document.get("errors", {}) if isinstance(document, dict) else {}
    said = " ".join(f"{field}: {' '.join(messages)}" for field, messages in errors.items())
    raise Refused(said or f"The console answered {status}.")
