"""The client of an attached plant: HTTP that answers in time, completely, and as JSON, or says why not.

Redirects are not followed: a token goes only to its intended server. An answer that trickles in, or is too large,
counts as no answer.
"""

import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import orjson

from common.documents import parse_json
from common.errors import describe_connection_error
from workers.host import egress
from workers.plants.foreign.answer_limit import answer_seconds
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

MAX_BYTES = 8 * 2**20
JSON = "application/json"


class PlantClient:
    """The client of one plant, whose name is part of each error message."""

    def __init__(
        self,
        name: str,
        url: str,
        token: str = "",
        timeout_seconds: float | None = None,
        transport: httpx.BaseTransport | None = None,
        user: str = "",
        headers: Mapping[str, str] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up the client. token: a bearer token, or with `user` that user's password. headers: of every request."""
        self._monotonic = monotonic
        timeout_seconds = answer_seconds() if timeout_seconds is None else timeout_seconds
        self.name, self._url, self._timeout_seconds = name, url.rstrip("/"), timeout_seconds
        sent = f"Basic {b64encode(f'{user}:{token}'.encode()).decode()}" if user else f"Bearer {token}"
        headers = {**({"Authorization": sent} if token or user else {}), **(headers or {})}
        # The client's own deadline ends an answer that trickles in, with a better message.
        self._client = egress.create_client(
            timeout_seconds, headers=headers, total_seconds=2 * timeout_seconds, transport=transport
        )

    def ask(
        self, method: str, path: str, body: object = None, *, content_type: str = JSON, **query: str
    ) -> tuple[int, Any]:
        """Return (status, document); the document is null if the answer is empty.

        Raise `PlantUnavailable` and `InvalidPlantResponse`.
        """
        content = None if body is None else orjson.dumps(body)
        status, answer = self.send(method, path, content, content_type, **query)
        try:
            return status, parse_json(answer) if answer else None
        except (orjson.JSONDecodeError, RecursionError) as error:
            raise InvalidPlantResponse(f"{self.name} returned {status} with invalid or incomplete JSON.") from error

    def send(
        self, method: str, path: str, content: bytes | None, content_type: str = JSON, **query: str
    ) -> tuple[int, bytes]:
        """Return (status, raw answer). Raise `PlantUnavailable`, or `InvalidPlantResponse` if it is too large."""
        deadline = self._monotonic() + self._timeout_seconds
        headers = {} if content is None else {"Content-Type": content_type}
        try:
            with self._client.stream(
                method, f"{self._url}/{path}", params=query or None, content=content, headers=headers
            ) as response:
                answer = self._read(response, deadline)
        except httpx.TimeoutException as error:
            raise PlantUnavailable(f"{self.name} did not respond within {self._timeout_seconds:g} s.") from error
        except httpx.TransportError as error:
            raise PlantUnavailable(f"{self.name} can't be reached ({describe_connection_error(error)}).") from error
        except (httpx.DecodingError, httpx.InvalidURL) as error:
            raise InvalidPlantResponse(
                f"{self.name} returned a response that can't be decompressed ({error})."
            ) from error
        return response.status_code, answer

    def close(self) -> None:
        self._client.close()

    def _read(self, response: httpx.Response, deadline: float) -> bytes:
        """Return the whole body; a server that sends it slowly times out, too."""
        packed = response.headers.get("Content-Encoding", "identity")
        if packed.lower() != "identity":
            # Weir does not request compression, and a few compressed bytes may become gigabytes.
            raise InvalidPlantResponse(f"{self.name} returned a response that can't be decompressed ({packed[:20]}).")
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > MAX_BYTES:
                raise InvalidPlantResponse(f"{self.name} returned more than {MAX_BYTES} bytes.")
            if self._monotonic() > deadline:
                raise PlantUnavailable(f"{self.name} did not complete its response within {self._timeout_seconds:g} s.")
        return bytes(body)


def find_first_error(document: object) -> tuple[str, str]:
    """Return field and message of `{"errors": {"field": ["message"]}}`; Flink sends a list of messages."""
    errors: Mapping[str, object] | list[object] | None = document.get("errors") if isinstance(document, dict) else None
    for field, messages in errors.items() if isinstance(errors, dict) else [("", errors)]:
        if isinstance(messages, list) and messages:
            return str(field)[:100], str(messages[0]).partition("\n")[0][:500]
    return "", "no reason given"
