"""The console as people and programs reach it: through the proxy, over TLS, by a token of the API."""

import json
import os
import ssl
from typing import Any, Self

import httpx

from tests.production.engine import Stack

# Where the proxy's own authority keeps its certificate (Caddy's "tls internal").
AUTHORITY = "/data/caddy/pki/authorities/local/root.crt"


class Console:
    """Answers of the API, asked as the host that people would open."""

    def __init__(self, client: httpx.Client, host: str) -> None:
        self._client = client
        self._host = host

    @classmethod
    def over_tls(cls, stack: Stack, host: str, port: int) -> Self:
        trust = ssl.create_default_context(cadata=stack.inside("proxy", "cat", AUTHORITY))
        made = json.loads(
            stack.manage("token", f"walk-{os.getpid()}", "--role", "administrator", "--days", "1", "--json")
        )
        headers = {"Host": host, "Authorization": f"Bearer {made['token']}"}
        client = httpx.Client(base_url=f"https://127.0.0.1:{port}", headers=headers, verify=trust, timeout=30)
        return cls(client, host)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._client.request(method, path, extensions={"sni_hostname": self._host}, **options)

    def snapshot(self) -> dict[str, Any] | None:
        """The newest state of the plant; None while there is none or the console does not answer."""
        try:
            answer = self.request("GET", "/api/v1/live")
        except httpx.TransportError:
            return None
        return answer.json()["snapshot"] if answer.status_code == 200 else None

    def publish(self, queue: str, events: list[dict[str, Any]]) -> int:
        """How many of the events were acknowledged."""
        lines = "\n".join(map(json.dumps, events))
        answer = self.request("POST", f"/api/v1/queues/{queue}/events", content=lines)
        assert answer.status_code == 202, answer.text
        return answer.json()["published"]
