"""Another plant, through the control API that it serves (`console.api.plant_control`).

A topology is one answer, so that it is of one moment. What comes late, broken off, too large or not as the
API says is no topology: whoever asked holds, and tells the reason. A setting that is not answered may have
happened; it is sent again, which changes nothing.
"""

import time
from collections.abc import Mapping
from typing import Any

import httpx
import orjson

from controllers.measured_topology import Topology
from queues.errors import BadInput
from workers.plants.holding import SECONDS, PlantHeld
from workers.plants.plant import PlantConfused, PlantSilent

TIMEOUT_SECONDS = 2.0
MOST_BYTES = 8 * 2**20


class RemotePlant:
    """A client of one plant. url: of the control API, as `https://weir.example/control/main/v1`."""

    def __init__(
        self,
        name: str,
        url: str,
        token: str,
        timeout_seconds: float = TIMEOUT_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.name = name
        self._url, self._timeout_seconds = url.rstrip("/"), timeout_seconds
        # Redirects are not followed: the token goes only where it was meant to.
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {token}"}, timeout=timeout_seconds, transport=transport
        )

    def topology(self) -> Topology:
        """What the plant says of itself now. Raises PlantSilent and PlantConfused."""
        document = self._ask("GET", "gettopology")
        try:
            return Topology.from_document(document)
        except BadInput as error:
            raise PlantConfused(f"{self.name} answers what can't be understood ({error}).") from error

    def set_parallelism(self, tasks: Mapping[str, int], seconds: float = SECONDS) -> None:
        """And hold the plant so long; raises as `Elastic` says."""
        if tasks:
            wanted = ";".join(f"{name}:{count}" for name, count in tasks.items())
            self._ask("POST", "setmultipleoperatorparallelism", map=wanted, seconds=seconds)

    def hold(self, seconds: float = SECONDS) -> None:
        """Keep the plant so long without setting anything. Raises PlantHeld while another has it."""
        self._ask("POST", "hold", seconds=seconds)

    def close(self) -> None:
        self._client.close()

    def _ask(self, method: str, operation: str, **query: Any) -> Any:
        deadline = time.monotonic() + self._timeout_seconds
        url = f"{self._url}/{operation}"
        try:
            with self._client.stream(method, url, params=query) as response:
                body = self._read(response, deadline)
        except httpx.TimeoutException as error:
            raise PlantSilent(f"{self.name} did not answer within {self._timeout_seconds:g} s.") from error
        except httpx.TransportError as error:
            raise PlantSilent(f"{self.name} can't be reached ({error}).") from error
        except httpx.DecodingError as error:
            raise PlantConfused(f"{self.name} answers what can't be unpacked ({error}).") from error
        return self._judged(response.status_code, self._document(body, response.status_code))

    def _read(self, response: httpx.Response, deadline: float) -> bytes:
        """The whole body; a server that sends it drop by drop is slow, too."""
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > MOST_BYTES:
                raise PlantConfused(f"{self.name} answers more than {MOST_BYTES} bytes.")
            if time.monotonic() > deadline:
                raise PlantSilent(f"{self.name} did not end its answer within {self._timeout_seconds:g} s.")
        return bytes(body)

    def _document(self, body: bytes, status: int) -> Any:
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise PlantConfused(
                f"{self.name} answers {status} with what is no JSON, or only half of it."
            ) from error

    def _judged(self, status: int, document: Any) -> Any:
        """The document of an answer that says yes."""
        if status == 200:
            return document
        given = document if isinstance(document, dict) else {}
        field, message = _first_error(given)
        if status == 409 and isinstance(given.get("holder"), str):
            raise PlantHeld(self.name, given["holder"], float(given.get("until") or 0.0))
        if status == 422:
            raise BadInput(field, message)
        if status == 503:
            raise PlantSilent(f"{self.name}: {message}")
        raise PlantConfused(f"{self.name} refuses us ({status}): {message}")


def _first_error(document: Mapping[str, Any]) -> tuple[str, str]:
    """Field and message of what the API says no with."""
    errors = document.get("errors")
    if isinstance(errors, dict):
        for field, messages in errors.items():
            if isinstance(messages, list) and messages:
                return str(field), str(messages[0])[:500]
    return "", "it doesn't say why"
