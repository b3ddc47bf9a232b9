"""The embedded plant of one data folder: the ports of its servers, and their password."""

import json
import secrets
from pathlib import Path

from common import environment as variables
from common.errors import BadInput
from common.files import write_private

# Exists while the folder's plant is restored from a backup, and after a restore that was killed.
RESTORING = "restoring"


def check_whole(data: Path) -> None:
    """Raise `BadInput` if a restore has started and not ended: tables may be filled, and nodes empty."""
    if (data / RESTORING).exists():
        raise BadInput(
            variables.DATA.name,
            f"points to {data}, where a restore did not finish. Empty the folder and the plant's database and "
            "servers, then restore again.",
        )


class EmbeddedServers:
    """The saved settings of a folder's embedded servers (`local.json`, readable only for this user).

    Raises `BadInput` if it can't be read.
    """

    def __init__(self, data: Path) -> None:
        self.data = data
        self.path = data / "local.json"
        kept: object = {}
        if self.path.exists():
            try:
                kept = json.loads(self.path.read_text())
            except ValueError:
                kept = None
        if not isinstance(kept, dict):
            raise BadInput(
                variables.DATA.name,
                f"contains {self.path}, which is damaged. Delete the file. The next start creates it with new ports.",
            )
        self.password: str = kept.get("password") or secrets.token_urlsafe(24)
        self.ports: dict[str, int] = kept.get("ports", {})

    def keep(self) -> None:
        write_private(self.path, json.dumps({"password": self.password, "ports": self.ports}))

    def control_url(self) -> str | None:
        """Return the address of the control server of this folder's plant; None if it never had one."""
        return self.build_url("control") if "control" in self.ports else None

    def build_url(self, name: str) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.ports[name]}/0"
