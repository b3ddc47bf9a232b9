"""The audit as a chain: every entry's digest covers all of its fields and the digest of the entry before.

    digest(n) = HMAC-SHA-256(key, canonical(n, digest(n-1), at, actor, action, target, reason, before, after,
                address, request id)),   digest(0) = 64 zeros

Altering, removing, inserting or re-ordering rows breaks it. The key comes from WEIR_AUDIT_KEY or the signing
key, which the database does not hold: whoever has only the database can't compute a chain anew, as would be
possible with a plain SHA-256. Whoever has the key as well can; then the head kept elsewhere shows it
(`console.audit.witness`).

Writers take turns: the lock is taken with the entry and kept until the change's transaction ends, so an entry
is to be the last thing that a transaction locks.
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
# Any number that nothing else locks; PostgreSQL's advisory locks are numbers of 64 bits.
LOCK = 0x7765_6972_6175_6474
# Beyond the one a float is no whole number exactly, and there is none beyond the other.
EXACT, LARGEST = 2**53, 2**1023
CONTENT = ("at", "actor", "action", "target", "reason", "before", "after", "address", "request_id")


def append(**fields: Any) -> AuditEntry:
    """Write an entry behind the last one, in the transaction that is open, else in one of its own."""
    with transaction.atomic():
        _take_turn()
        last = AuditEntry.objects.order_by("-sequence").values_list("sequence", "digest").first()
        sequence, previous = (last[0] + 1, last[1]) if last else (1, ORIGIN)
        entry = AuditEntry(at=timezone.now(), sequence=sequence, previous=previous, **fields)
        entry.digest = digest_of(content_of(entry), sequence, previous, settings.WEIR_AUDIT_KEYS[0])
        entry.save(force_insert=True)
        transaction.on_commit(lambda: _write_witness(sequence, entry.digest), robust=True)
    return entry


def _write_witness(sequence: int, digest: str) -> None:
    """What somebody did is on the disk before anybody says that it is done. SQLite's commits get there with
    the next checkpoint (settings: NORMAL): a host that loses its power would take them back, and its audit
    would be shorter than the control server has seen it.
    """
    if connection.vendor == "sqlite":
        put_on_disk(Path(f"{connection.settings_dict['NAME']}-wal"))
    witness.send_head(sequence, digest)


def _take_turn() -> None:
    """Nobody else appends until this transaction ends. On SQLite a transaction has the database's write lock
    from its beginning (settings: IMMEDIATE).
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])


def content_of(entry: AuditEntry) -> dict[str, Any]:
    """What people read of an entry."""
    return {name: getattr(entry, name) for name in CONTENT}


def canonical(content: Mapping[str, Any], sequence: int, previous: str) -> bytes:
    """The bytes that a digest covers: the same before and after a database has kept the entry.

    A database keeps a document's meaning, not its spelling: PostgreSQL sorts its keys, and gives 1e2 back as
    100. So documents are written with sorted keys, whole numbers without a fraction, times in UTC to the µs.
    """
    address = content["address"]
    plain = {
        **content,
        "at": content["at"].astimezone(UTC).isoformat(timespec="microseconds"),
        "before": _plain(content["before"]),
        "after": _plain(content["after"]),
        "address": str(ipaddress.ip_address(address)) if address else None,
    }
    document = [sequence, previous, plain]
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_key(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _key(key: Any) -> str:
    """As JSON writes a key."""
    if isinstance(key, str):
        return key
    return json.dumps(key)


def digest_of(content: Mapping[str, Any], sequence: int, previous: str, key: bytes) -> str:
    """In hex."""
    return hmac.new(key, canonical(content, sequence, previous), hashlib.sha256).hexdigest()


def is_genuine(content: Mapping[str, Any], sequence: int, previous: str, digest: str) -> bool:
    """Whether one of the keys made this digest: an older key stays valid for what was written under it."""
    documents = {name: _as_written(content[name]) for name in ("before", "after")}
    try:
        return any(
            _is_digest(canonical(candidate, sequence, previous), digest)
            for candidate in (content, {**content, **documents})
        )
    except (TypeError, ValueError, AttributeError):
        return False  # what stands there was never written by `append`


def _is_digest(covered: bytes, digest: str) -> bool:
    made = (hmac.new(key, covered, hashlib.sha256).hexdigest() for key in settings.WEIR_AUDIT_KEYS)
    return any(hmac.compare_digest(character, digest) for character in made)


def _as_written(value: Any) -> Any:
    """A document before PostgreSQL kept it. It takes 1e23 for 10**23, which is not the number that was
    written: from 2**53 on a float is seldom what its digits say.
    """
    if isinstance(value, Mapping):
        return {key: _as_written(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_written(item) for item in value]
    if isinstance(value, int) and EXACT < abs(value) < LARGEST and int(Decimal(repr(float(value)))) == value:
        return float(value)
    return value


def chain_rows(rows: Iterable[Any], sequence: int = 0, previous: str = ORIGIN) -> Iterable[Any]:
    """The rows (of any model with an entry's fields) with sequence, previous and digest set, one after the
    other: for the migration that chains what is there.
    """
    for row in rows:
        sequence += 1
        row.sequence, row.previous = sequence, previous
        row.digest = previous = digest_of(content_of(row), sequence, previous, settings.WEIR_AUDIT_KEYS[0])
        yield row
