"""How a tool reaches the API: in this process as the token that asks, or over HTTP at a console elsewhere."""

import json
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

import httpx

from console.accounts.access import Actor
from console.api.request import in_process

TIMEOUT_SECONDS = 60.0


class Refused(Exception):  # noqa: N818 - the API has answered, with a no
    """The API said no, or did not answer; in a sentence that names the field."""


class Calls(Protocol):
    """The API, as one who may use it."""

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """What it answers, as a document. Raises Refused."""
        ...


class InProcess:
    """The API of this process, as one actor."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        status, pieces = in_process.call(method, address(path, query), _content(body), self._actor)
        return read(status, b"".join(pieces))


class Remote:
    """The API of a console elsewhere, with a token."""

    def __init__(self, url: str, token: str, transport: httpx.BaseTransport | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._client = httpx.Client(
            base_url=url.rstrip("/"), headers=headers, timeout=TIMEOUT_SECONDS, transport=transport
        )

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        try:
            answer = self._client.request(method, address(path, query), content=_content(body))
        except httpx.HTTPError as error:
            raise Refused(f"The console does not answer ({type(error).__name__}); try again.") from None
        return read(answer.status_code, answer.content)


def address(path: str, query: Mapping[str, Any] | None) -> str:
    """A path with its query; what is None is left out."""
    given = {name: value for name, value in (query or {}).items() if value is not None and value != ""}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


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


def _content(body: Mapping[str, Any] | None) -> bytes:
    return b"" if body is None else json.dumps(body).encode()
