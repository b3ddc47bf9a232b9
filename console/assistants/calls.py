"""How a tool reaches the API: in this process as the token that asks, or over HTTP at a console elsewhere."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import httpx

from console.accounts.access import Actor
from console.api.request import in_process

TIMEOUT_SECONDS = 60.0


class Refused(Exception):  # noqa: N818 - the API has answered, with a no
    """The API said no, or did not answer; in a sentence that names the field."""


class Calls(ABC):
    """The API, as one who may use it."""

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """What it answers, as a document; of the query what is None or empty is left out. Raises Refused."""
        given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        address = f"{path}?{urlencode(given, doseq=True)}" if given else path
        content = b"" if body is None else json.dumps(body).encode()
        return read(*self._send(method, address, content))

    @abstractmethod
    def _send(self, method: str, address: str, content: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer. Raises Refused where there is none."""


class InProcess(Calls):
    """The API of this process, as one actor."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def _send(self, method: str, address: str, content: bytes) -> tuple[int, bytes]:
        status, pieces = in_process.call(method, address, content, self._actor)
        return status, b"".join(pieces)


class Remote(Calls):
    """The API of a console elsewhere, with a token."""

    def __init__(self, url: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._client = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=TIMEOUT_SECONDS)

    def _send(self, method: str, address: str, content: bytes) -> tuple[int, bytes]:
        try:
            answer = self._client.request(method, address, content=content)
        except httpx.HTTPError as error:
            raise Refused(f"The console does not answer ({type(error).__name__}); try again.") from None
        return answer.status_code, answer.content


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
