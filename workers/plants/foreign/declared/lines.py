"""The lines of one declared plant to the servers that it names: one for each server and login."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

from queues import environment as variables
from workers.host import egress
from workers.plants.foreign.declared.login import Login
from workers.plants.foreign.line import PlantClient


class Lines:
    """Opened when they are first needed, closed together. A secret is read when its line is opened."""

    def __init__(
        self,
        plant: str,
        environment: Mapping[str, str] = variables.PROCESS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._plant, self.environment, self._transport = plant, environment, transport
        self._open: dict[tuple[str, Login], PlantClient] = {}

    def to(self, url: str, login: Login) -> tuple[PlantClient, str]:
        """(line, path with its query) of an address. Raises BadInput when the secret is not set, or
        may not be used there.
        """
        parts = urlsplit(url)
        server = f"{parts.scheme}://{parts.netloc}"
        line = self._open.get((server, login))
        if line is None:
            egress.check_secret_host(login.environment, parts.hostname, environment=self.environment)
            headers = login.headers(self.environment)
            name = f"{self._plant} ({parts.netloc})"
            line = PlantClient(name, server, headers=headers, transport=self._transport)
            line = self._open.setdefault((server, login), line)
        return line, parts.path.lstrip("/") + (f"?{parts.query}" if parts.query else "")

    def close(self) -> None:
        for line in self._open.values():
            line.close()
