"""The embedded plant of one data folder: which ports its servers have, and the password they ask for."""

import json
import secrets
from pathlib import Path
from typing import Any

from queues import environment as variables
from queues.errors import BadInput
from queues.private_files import write_private

# There while the folder's plant is filled from a backup, and after a try that was killed.
RESTORING = "restoring"


def check_whole(data: Path) -> None:
    """Raises BadInput where a restore has begun and not ended: tables may be full, and nodes empty."""
    if (data / RESTORING).exists():
        raise BadInput(
            variables.DATA.name,
            f"names {data}, where a restore has begun and not ended; empty it, and the plant's database and "
            "servers, then restore again.",
        )


class EmbeddedServers:
    """What is kept of a folder's embedded servers over restarts (`local.json`, ours alone to read). Raises
    BadInput where that can't be read.
    """

    def __init__(self, data: Path) -> None:
        self.data = data
        self.path = data / "local.json"
        kept = _read(self.path) if self.path.exists() else {}
        self.password: str = kept.get("password") or secrets.token_urlsafe(24)
        self.ports: dict[str, int] = kept.get("ports", {})

    def keep(self) -> None:
        write_private(self.path, json.dumps({"password": self.password, "ports": self.ports}))

    def control_url(self) -> str | None:
        """Where the control server of this folder's plant is; None when it never had one."""
        return self.url("control") if "control" in self.ports else None

    def url(self, name: str) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.ports[name]}/0"


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text())
    except ValueError:
        kept = None
    if not isinstance(kept, dict):
        raise BadInput(
            variables.DATA.name,
            f"has {path}, which is damaged; delete that file: the next start makes another, with new ports.",
        )
    return kept
