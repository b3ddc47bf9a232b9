"""The length of the audit log, kept outside of its table, so that a truncated end is noticed.

It is kept on the control server, written with every entry after its transaction; and in WEIR_DATA/audit-heads.jsonl, a
line for each check that found the audit log grown and intact. Each statement has a seal (HMAC with the audit's key):
without the key nobody can claim another head.
"""

import hashlib
import hmac
import json
import logging
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import redis
from django.conf import settings

from console.connections.control_server import control
from queues import keys
from queues.lua.script import load_script

logger = logging.getLogger(__name__)
FILE = "audit-heads.jsonl"
LAST_LINES = 1_000
MAX_LINE = 1_000  # bytes; one has 180


@dataclass(frozen=True)
class Head:
    """The last entry. `place`: where it is stated."""

    sequence: int
    digest: str
    place: str = ""


class ForgedHead(Exception):  # noqa: N818
    """A statement about the head without a valid seal; its text says where."""


def send_head(sequence: int, digest: str) -> None:
    """Send the head to the control server. If it does not answer, the next entry or the checker sends it."""
    try:
        control().eval(
            load_script("control/keep_audit_head"), 1, keys.AUDIT_HEAD, sequence, _seal_head(Head(sequence, digest))
        )
    except redis.RedisError as error:
        logger.debug("The control server did not receive audit entry %s: %s", sequence, error)


def read_server_head() -> Head | None:
    """Return the control server's last head; None if there is none. Raises Forged, and redis.RedisError."""
    stored = control().get(keys.AUDIT_HEAD)
    return None if stored is None else _read(stored, "the control server")


def forget() -> None:
    """Delete the head, after the audit log was restored from a backup and accepted."""
    control().delete(keys.AUDIT_HEAD)


def keep(folder: Path, head: Head) -> None:
    """Add a line to the file, replacing an incomplete line of a full disk."""
    with (folder / FILE).open("ab+") as file:
        end = file.tell()
        file.seek(max(0, end - MAX_LINE))
        tail = file.read()
        file.truncate(end - len(tail) + tail.rfind(b"\n") + 1)
        file.write(_seal_head(head).encode() + b"\n")


def read_disk_heads(folder: Path, lines: int | None = None) -> list[Head]:
    """Return the statements in the last lines of the file (None: in all).

    A line without an end is ignored: the disk was full. Raises Forged, and OSError.
    """
    path = folder / FILE
    if not path.exists():
        return []
    with path.open(encoding="utf-8", errors="replace") as file:
        numbered = deque(
            (numbered_line for numbered_line in enumerate(file, 1) if numbered_line[1].endswith("\n")), lines
        )
    return [_read(line, f"{FILE}, line {number},") for number, line in numbered]


def put_aside(folder: Path, now: datetime) -> None:
    """Start a new file; the old one is kept beside it, as evidence."""
    path = folder / FILE
    if path.exists():
        path.rename(folder / f"audit-heads-until-{now:%Y%m%dT%H%M%S}.jsonl")


def _seal_head(head: Head) -> str:
    return json.dumps({"sequence": head.sequence, "digest": head.digest, "seal": _seal(head, _get_audit_keys()[0])})


def _read(text: str | bytes, place: str) -> Head:
    try:
        document: Any = json.loads(text)
        head = Head(int(document["sequence"]), str(document["digest"]), place)
        seal = str(document["seal"])
    except (ValueError, KeyError, TypeError):
        raise ForgedHead(f"{place} contains no valid head of the audit log.") from None
    if not any(hmac.compare_digest(_seal(head, key), seal) for key in _get_audit_keys()):
        raise ForgedHead(f"{place} contains an audit log head whose signature does not match any key of this console.")
    return head


def _seal(head: Head, key: bytes) -> str:
    return hmac.new(key, f"head {head.sequence} {head.digest}".encode(), hashlib.sha256).hexdigest()


def _get_audit_keys() -> list[bytes]:
    keys: list[bytes] = settings.WEIR_AUDIT_KEYS
    return keys
