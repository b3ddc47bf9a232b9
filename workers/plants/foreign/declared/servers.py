"""The servers of a declared plant: their logins, and one HTTP client for each server and login.

A secret exists only in the environment. A declaration names the variable (`secret_environment`) and how its value is
sent (`secret_as`): as a bearer token, as `user:password` of basic authentication, or in a header of that name.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from common import checks
from common import environment as variables
from common.errors import BadInput
from workers.host import egress
from workers.plants.foreign.client import PlantClient

BEARER, BASIC = "bearer", "basic"
HEADER = re.compile(r"X-[A-Za-z0-9-]{1,40}\Z")
KEYS = ("secret_environment", "secret_as")


@dataclass(frozen=True)
class Login:
    """A login. environment: the name of the variable, "" for none."""

    environment: str = ""
    sent_as: str = BEARER

    def build_headers(self, environment: Mapping[str, str] = variables.PROCESS) -> dict[str, str]:
        """Return the headers to send. Raise `BadInput` if the variable is not set or can't be sent."""
        if not self.environment:
            return {}
        secret = variables.read_secret(self.environment, environment)
        if not secret:
            raise BadInput("secret_environment", f"names {self.environment}, which is not set in Weir's environment")
        if self.sent_as != BASIC:
            egress.check_header_secret(self.environment, secret)
        if self.sent_as == BEARER:
            return {"Authorization": f"Bearer {secret}"}
        if self.sent_as == BASIC:
            return {"Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}"}
        return {self.sent_as: secret}


def read_login(document: Mapping[str, Any], where: str) -> Login:
    """Read the login of a sensor, server, or call. Raise `BadInput`, naming the field."""
    name = document.get("secret_environment", "")
    if name:
        checks.accept_text().validate(name, f"{where}.secret_environment")
        egress.check_secret_name(name, f"{where}.secret_environment")
    sent_as = document.get("secret_as", BEARER)
    if sent_as not in (BEARER, BASIC) and not (isinstance(sent_as, str) and HEADER.match(sent_as)):
        takes = f"must be {BEARER}, {BASIC}, or the name of a header that starts with X-"
        raise BadInput(f"{where}.secret_as", f"{takes}, not {checks.shorten_for_message(sent_as)}")
    return Login(name, sent_as)


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
