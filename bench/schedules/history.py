"""The history of a schedule: each operation of each process, as two JSON lines in a file of the process.

A process writes `invoke` before an operation and its outcome after it: `ok`, `fail` (nothing happened), or `unknown`
(it may have happened). An operation without an outcome is unknown: its process was killed. All times are nanoseconds of
the machine's monotonic clock, which no fault changes, so the lines of different processes can be compared.
"""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import NodeFull

OK, FAIL, UNKNOWN = "ok", "fail", "unknown"


@dataclass(frozen=True)
class Operation:
    """An operation. number: its place in its process. ended_ns: None if it has no outcome."""

    process: str
    number: int
    kind: str
    began_ns: int
    ended_ns: int | None
    outcome: str
    data: dict[str, Any]

    def describe(self) -> str:
        """Return one line for a report."""
        text = json.dumps(self.data, sort_keys=True)
        shown = text if len(text) <= 160 else f"{text[:157]}..."
        return f"{self.began_ns / 1e9:.3f} s {self.process} {self.kind} {self.outcome} {shown}"


class Recorder:
    """Writes the history of one process. A line is written at once, so a killed process loses none."""

    def __init__(self, folder: Path, process: str) -> None:
        self._file = os.open(folder / f"{process}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._process, self._number, self._lock = process, 0, threading.Lock()

    @contextmanager
    def record(self, kind: str, **data: Any) -> Iterator[dict[str, Any]]:
        """Record an operation. The caller adds its result to the yielded dictionary."""
        with self._lock:
            self._number += 1
            number = self._number
        self._write(number, "invoke", kind=kind, data=data)
        result: dict[str, Any] = {}
        try:
            yield result
        except BaseException as error:
            is_certain = isinstance(error, NodeFull)
            self._write(number, FAIL if is_certain else UNKNOWN, data={"error": type(error).__name__, **result})
            raise
        self._write(number, OK, data=result)

    def _write(self, number: int, phase: str, **content: Any) -> None:
        row = {"process": self._process, "number": number, "phase": phase, "at_ns": time.monotonic_ns(), **content}
        os.write(self._file, json.dumps(row, separators=(",", ":")).encode() + b"\n")


def read_history(folder: Path) -> list[Operation]:
    """Return the operations of all processes by their beginning."""
    return build_operations(
        json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()
    )


def build_operations(rows: Iterator[dict[str, Any]]) -> list[Operation]:
    """Return the operations of recorded lines by their beginning."""
    begun: dict[tuple[str, int], dict[str, Any]] = {}
    ended: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        (begun if row["phase"] == "invoke" else ended)[row["process"], row["number"]] = row
    operations = [_merge(begun[place], ended.get(place)) for place in begun]
    return sorted(operations, key=lambda operation: operation.began_ns)


def _merge(begun: dict[str, Any], ended: dict[str, Any] | None) -> Operation:
    head = begun["process"], begun["number"], begun["kind"], begun["at_ns"]
    if ended is None:
        return Operation(*head, None, UNKNOWN, begun["data"])
    return Operation(*head, ended["at_ns"], ended["phase"], {**begun["data"], **ended["data"]})
