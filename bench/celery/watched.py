"""Weir, attached to apps, in a process of its own: the watch, the loops of one law, their ledger."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from bench.plant.running_plant import ROOT, clean_environment, manage
from bench.queues.node_servers import node_servers

SEEN_SECONDS = 60.0


class Attached:
    """plants: name → address of the broker; law: as `steering` takes it, "" for its own. Use as a context
    manager.
    """

    def __init__(self, plants: Mapping[str, str], folder: Path, law: str = "") -> None:
        self._law = law
        self._plants, self._folder = dict(plants), folder / "weir"
        self._folder.mkdir()
        self._stack = ExitStack()
        self._notes = self._folder / "notes"

    def __enter__(self) -> Self:
        control = self._stack.enter_context(node_servers(("control",)))["control"]
        environment = {
            **clean_environment(),
            "WEIR_DATA": str(self._folder),
            "DATABASE_URL": f"sqlite:///{self._folder}/weir.sqlite3",
            "REDIS_URL": control,
            "WEIR_EGRESS_ALLOW": "127.0.0.0/8",
        }
        manage(environment, "migrate", "--verbosity=0", "--no-input")
        arguments = f"{json.dumps(self._plants)}, {str(self._notes)!r}"
        arguments += f", {self._law!r}" if self._law else ""
        code = f"from bench.celery.steering import steer; steer({arguments})"
        with (self._folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "manage.py", "shell", "-v", "0", "-c", code],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._stack.close()

    def wait_until_seen(self) -> dict[str, float]:
        """Plant → seconds from being registered to the first decision on a measurement of it."""
        deadline = time.monotonic() + 2 * SEEN_SECONDS
        while time.monotonic() < deadline:
            seen_seconds = {
                note["plant"]: note["decided_seconds"] for note in self.notes() if "decided_seconds" in note
            }
            if seen_seconds.keys() == self._plants.keys():
                return seen_seconds
            if self._process.poll() is not None:
                break
            time.sleep(0.5)
        raise RuntimeError(f"not attached:\n{(self._folder / 'log').read_text()[-3000:]}")

    def notes(self) -> list[dict[str, Any]]:
        """What it has noted: decisions with their reason."""
        if not self._notes.exists():
            return []
        return [json.loads(line) for line in self._notes.read_text().splitlines() if line.endswith("}")]
