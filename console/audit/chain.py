"""The audit log as a chain: every entry's digest covers all of its fields and the previous entry's digest.

    digest(n) = HMAC-SHA-256(key, canonical(n, digest(n-1), at, actor, action, target, reason, before, after,
                address, request id)),   digest(0) = 64 zeros

Altering, removing, inserting, or reordering rows breaks it. The key comes from WEIR_AUDIT_KEY or the signing key, which
are not in the database: with the database alone an attacker can't compute a new chain, as would be possible with a
plain SHA-256. An attacker with the key can; then the head kept elsewhere shows it (`console.audit.witness`).

Writers take turns: the lock is taken with the entry and kept until the change's transaction ends, so an entry must be
the last thing that a transaction locks.
"""

import hashlib
import hmac
import ipaddress
import json
from collections.abc import Iterable, Mapping
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from console.audit import witness
from console.models import AuditEntry
from queues.nodes.file_sync import put_on_disk

ORIGIN = "0" * 64
# Any number that nothing else locks; PostgreSQL's advisory locks are 64-bit numbers.
LOCK = 0x7765_6972_6175_6474
# Above the first, a float is not exact for whole numbers; above the second, there is none.
EXACT, LARGEST = 2**53, 2**1023
CONTENT = ("at", "actor", "action", "target", "reason", "before", "after", "address", "request_id")


def append(**fields: object) -> AuditEntry:
    """Append an entry in the open transaction, or else in one of its own."""
    with transaction.atomic():
        _take_turn()
        last = AuditEntry.objects.order_by("-sequence").values_list("sequence", "digest").first()
        sequence, previous = (last[0] + 1, last[1]) if last else (1, ORIGIN)
        entry = AuditEntry(at=timezone.now(), sequence=sequence, previous=previous, **fields)
        entry.digest = digest_of(get_entry_content(entry), sequence, previous, settings.WEIR_AUDIT_KEYS[0])
        entry.save(force_insert=True)
        transaction.on_commit(lambda: _write_witness(sequence, entry.digest), robust=True)
    return entry


def _write_witness(sequence: int, digest: str) -> None:
    """Write the head to the witness, with the entry on the disk before the action is reported as done.

    SQLite's commits reach the disk with the next checkpoint (settings: NORMAL): after a power loss they would be
    undone, and the audit log would be shorter than the control server has recorded.
    """
    if connection.vendor == "sqlite":
        put_on_disk(Path(f"{connection.settings_dict['NAME']}-wal"))
    witness.send_head(sequence, digest)


def _take_turn() -> None:
    """Lock out other writers until this transaction ends.

    On SQLite a transaction has the database's write lock from its start (settings: IMMEDIATE).
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])


def get_entry_content(entry: AuditEntry) -> dict[str, Any]:
    """Return the fields of an entry that people read."""
    return {name: getattr(entry, name) for name in CONTENT}


def encode_canonical_entry(content: Mapping[str, Any], sequence: int, previous: str) -> bytes:
    """Return the bytes that a digest covers.

    They are the same before and after a database has stored the entry.

    A database keeps a document's meaning, not its spelling: PostgreSQL sorts its keys, and returns 1e2 as 100.
    Documents are therefore written with sorted keys, whole numbers without a fraction, and times in UTC to the µs.
    """
    address = content["address"]
    plain = {
        **content,
        "at": content["at"].astimezone(UTC).isoformat(timespec="microseconds"),
        "before": _normalize_value(content["before"]),
        "after": _normalize_value(content["after"]),
        "address": str(ipaddress.ip_address(address)) if address else None,
    }
    document = [sequence, previous, plain]
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _normalize_value(value: object) -> object:
    if isinstance(value, Mapping):
        return {_format_key(key): _normalize_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normalize_value(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _format_key(key: object) -> str:
    """Return a key as JSON writes it."""
    if isinstance(key, str):
        return key
    return json.dumps(key)


def digest_of(content: Mapping[str, Any], sequence: int, previous: str, key: bytes) -> str:
    """Return the digest in hex."""
    return hmac.new(key, encode_canonical_entry(content, sequence, previous), hashlib.sha256).hexdigest()


def is_genuine(content: Mapping[str, Any], sequence: int, previous: str, digest: str) -> bool:
    """Return whether one of the keys made this digest. An older key stays valid for entries written with it."""
    documents = {name: _as_written(content[name]) for name in ("before", "after")}
    try:
        return any(
            _is_digest(encode_canonical_entry(candidate, sequence, previous), digest)
            for candidate in (content, {**content, **documents})
        )
    except (TypeError, ValueError, AttributeError):
        return False  # the stored value was never written by `append`


def _is_digest(covered: bytes, digest: str) -> bool:
    made = (hmac.new(key, covered, hashlib.sha256).hexdigest() for key in settings.WEIR_AUDIT_KEYS)
    return any(hmac.compare_digest(character, digest) for character in made)


def _as_written(value: object) -> object:
    """Return a document as it was before PostgreSQL stored it.

    PostgreSQL reads 1e23 as 10**23, which is not the number that was written: from 2**53 on a float seldom equals its
    digits.
    """
    if isinstance(value, Mapping):
        return {key: _as_written(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_written(item) for item in value]
    if isinstance(value, int) and EXACT < abs(value) < LARGEST and int(Decimal(repr(float(value)))) == value:
        return float(value)
    return value


def chain_rows(rows: Iterable[Any], sequence: int = 0, previous: str = ORIGIN) -> Iterable[Any]:
    """Return the rows (of any model with an entry's fields) with sequence, previous, and digest set.

    Used by the migration that chains existing entries.
    """
    for row in rows:
        sequence += 1
        row.sequence, row.previous = sequence, previous
        row.digest = previous = digest_of(get_entry_content(row), sequence, previous, settings.WEIR_AUDIT_KEYS[0])
        yield row
