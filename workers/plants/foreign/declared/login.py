"""How a declared plant logs in to its servers: with a secret that exists only in the environment.

A declaration names the variable (`secret_environment`) and how its value is sent (`secret_as`): as a bearer token, as
`user:password` of basic authentication, or in a header of that name.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common import checks
from common import environment as variables
from common.errors import BadInput
from workers.host import egress

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
