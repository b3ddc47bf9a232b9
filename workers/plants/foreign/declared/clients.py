"""The HTTP clients of one declared plant, one for each server and login."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

from common import environment as variables
from workers.host import egress
from workers.plants.foreign.client import PlantClient
from workers.plants.foreign.declared.login import Login


class ServerClients:
    """Clients that are opened on first use, when their secret is read, and closed together."""

    def __init__(
        self,
        plant: str,
        environment: Mapping[str, str] = variables.PROCESS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._plant, self.environment, self._transport = plant, environment, transport
        self._open: dict[tuple[str, Login], PlantClient] = {}

    def resolve(self, url: str, login: Login) -> tuple[PlantClient, str]:
        """Return (client, path with query) for an address.

        Raise `BadInput` if the secret is not set, or may not be used there.
        """
        parts = urlsplit(url)
        server = f"{parts.scheme}://{parts.netloc}"
        client = self._open.get((server, login))
        if client is None:
            egress.check_secret_host(login.environment, parts.hostname, environment=self.environment)
            headers = login.build_headers(self.environment)
            name = f"{self._plant} ({parts.netloc})"
            client = PlantClient(name, server, headers=headers, transport=self._transport)
            client = self._open.setdefault((server, login), client)
        return client, parts.path.lstrip("/") + (f"?{parts.query}" if parts.query else "")

    def close(self) -> None:
        for client in self._open.values():
            client.close()
