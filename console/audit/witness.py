"""How long the audit is, kept outside of its table, so that a tail that is cut off is missed.

On the control server, written with every entry when its transaction has ended; and in
WEIR_DATA/audit-heads.jsonl, a line for each check that found the audit grown and whole. Each statement
carries a seal (HMAC under the audit's key): nobody without the key can claim another head.
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
from queues.lua.script import script

logger = logging.getLogger(__name__)
FILE = "audit-heads.jsonl"
LAST_LINES = 1_000
LONGEST_LINE = 1_000  # bytes; one has 180


@dataclass(frozen=True)
class Head:
    """The last entry. `place`: who says so."""

    sequence: int
    digest: str
    place: str = ""


class Forged(Exception):  # noqa: N818
    """A statement about the head that carries no good seal; its text says where."""


def send_head(sequence: int, digest: str) -> None:
    """Report to the control server. One that does not answer gets it from the next entry, or from the
    checker.
    """
    try:
        control().eval(
            script("control/keep_audit_head"),
            1,
            keys.AUDIT_HEAD,
            sequence,
            _seal_head(Head(sequence, digest)),
        )
    except redis.RedisError as error:
        logger.debug("The control server did not receive audit entry %s: %s", sequence, error)


def head_at_server() -> Head | None:
    """What the control server got last; None when nothing. Raises Forged, and redis.RedisError."""
    stored = control().get(keys.AUDIT_HEAD)
    return None if stored is None else _read(stored, "the control server")


def forget() -> None:
    """For an audit that was restored from a backup and accepted as it is."""
    control().delete(keys.AUDIT_HEAD)


def keep(folder: Path, head: Head) -> None:
    """Add a line to the file, in place of what a full disk has left of one."""
    with (folder / FILE).open("ab+") as file:
        end = file.tell()
        file.seek(max(0, end - LONGEST_LINE))
        tail = file.read()
        file.truncate(end - len(tail) + tail.rfind(b"\n") + 1)
        file.write(_seal_head(head).encode() + b"\n")


def heads_on_disk(folder: Path, lines: int | None = None) -> list[Head]:
    """What the file says, in its last lines (None: in all). A line without an end says nothing: whoever wrote
    it found no room. Raises Forged, and OSError.
    """
    path = folder / FILE
    if not path.exists():
        return []
    with path.open(encoding="utf-8", errors="replace") as file:
        numbered = deque((each for each in enumerate(file, 1) if each[1].endswith("\n")), lines)
    return [_read(line, f"{FILE}, line {number},") for number, line in numbered]


def put_aside(folder: Path, now: datetime) -> None:
    """Begin the file anew; the old one stays beside it, as evidence."""
    path = folder / FILE
    if path.exists():
        path.rename(folder / f"audit-heads-until-{now:%Y%m%dT%H%M%S}.jsonl")


def _seal_head(head: Head) -> str:
    return json.dumps({"sequence": head.sequence, "digest": head.digest, "seal": _seal(head, _keys()[0])})


def _read(text: str | bytes, place: str) -> Head:
    try:
        document: Any = json.loads(text)
        head = Head(int(document["sequence"]), str(document["digest"]), place)
        seal = str(document["seal"])
    except (ValueError, KeyError, TypeError):
        raise Forged(f"{place} holds what is no statement about the audit.") from None
    if not any(hmac.compare_digest(_seal(head, key), seal) for key in _keys()):
        raise Forged(f"{place} names a head of the audit under no key of this console.")
    return head


def _seal(head: Head, key: bytes) -> str:
    return hmac.new(key, f"head {head.sequence} {head.digest}".encode(), hashlib.sha256).hexdigest()


def _keys() -> list[bytes]:
    keys: list[bytes] = settings.WEIR_AUDIT_KEYS
    return keys
