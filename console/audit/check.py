"""Verification of the audit log: finds altered, missing, inserted, or reordered rows, and a truncated end.

Rows are verified in blocks of BLOCK_ROWS. Verification recomputes every digest; a verified block is later only compared
by a fingerprint of its rows as the database has them, which is much faster, and verified again if that differs. Each
check therefore covers all rows, and a long audit log is cheap to check.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import redis
from django.db import OperationalError, connection
from django.db.models import Max, Min

from console.audit import witness
from console.audit.chain import CONTENT, ORIGIN, is_genuine
from console.audit.witness import ForgedHead, Head
from console.models import AuditEntry
from console.storage import append_only

BLOCK_ROWS = 1_000
ACCEPT = "audit.accept"
MAX_FINDINGS = 100
# Errors when a row has an invalid time, JSON, or text.
UNREADABLE = (ValueError, TypeError, AttributeError, OverflowError, OperationalError)
COLUMNS = ("pk", "sequence", "previous", "digest", *CONTENT)


@dataclass(frozen=True)
class Finding:
    """A problem.

    kind: altered, missing, inserted, reordered, cut, forged, or unprotected. sequence: the first entry affected. mark:
    identifies the content, to distinguish it from another finding at the same place.
    """

    kind: str
    sequence: int
    text: str
    mark: str = ""

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.sequence}:{self.mark}"


@dataclass(frozen=True)
class Verdict:
    """The result of a check.

    entries: number of rows; verified: rows whose digests were recomputed now; compared: by fingerprint.
    unchecked: rows left for the next check because the time was up. heads: statements kept elsewhere.
    """

    entries: int
    findings: Sequence[Finding]
    accepted: Sequence[Finding]
    verified: int
    compared: int
    unchecked: int
    heads: int
    seconds: float
    last: Head

    @property
    def sound(self) -> bool:
        return not self.findings

    def document(self) -> dict[str, Any]:
        return {
            "sound": self.sound,
            "entries": self.entries,
            "verified": self.verified,
            "compared": self.compared,
            "unchecked": self.unchecked,
            "heads": self.heads,
            "last": {"sequence": self.last.sequence, "digest": self.last.digest},
            "seconds": round(self.seconds, 3),
            "findings": [asdict(finding) for finding in self.findings[:MAX_FINDINGS]],
            "findings_count": len(self.findings),
            "accepted": [asdict(finding) for finding in self.accepted[:MAX_FINDINGS]],
        }


@dataclass
class _Block:
    """A verified block: its fingerprint, the digest of its last row, and its findings."""

    fingerprint: str
    before: str
    end: str
    findings: list[Finding] = field(default_factory=list)


class Checker:
    """Checks repeatedly, and remembers what it has verified: `step` is one complete check."""

    def __init__(
        self, folder: Path, budget_seconds: float | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._budget_seconds, self._monotonic = folder, budget_seconds, monotonic
        self._blocks: dict[int, _Block] = {}

    def step(self) -> Verdict:
        """Run one check. Raises the database's errors; without the control server, one witness is missing."""
        began = self._monotonic()
        heads, findings = self._read_heads()
        ends = AuditEntry.objects.aggregate(first=Min("sequence"), last=Max("sequence"))
        last = ends["last"] or 0
        findings += list(_load_previous_digest(ends["first"]))
        counts = self._walk(last, began, findings)
        tip = Head(last, AuditEntry.objects.filter(sequence=last).values_list("digest", flat=True).first() or ORIGIN)
        findings += list(_compare_heads(heads, tip))
        findings += list(_find_unprotected())
        # Only rows that existed at the start: later ones are for the next check.
        entries = AuditEntry.objects.filter(sequence__lte=last).count()
        findings += list(_too_many(entries, last))
        open_ones, accepted = _sort_findings(findings)
        return Verdict(
            entries=entries,
            findings=open_ones,
            accepted=accepted,
            heads=len(heads),
            seconds=self._monotonic() - began,
            last=tip,
            **counts,
        )

    def _walk(self, last: int, began: float, findings: list[Finding]) -> dict[str, int]:
        counts = {"verified": 0, "compared": 0, "unchecked": 0}
        before = ORIGIN
        for number in range(-(-last // BLOCK_ROWS)):
            first, end = number * BLOCK_ROWS + 1, min((number + 1) * BLOCK_ROWS, last)
            known, rows = self._blocks.get(number), end - first + 1
            if self._is_late(began) and known is None and end < last:
                counts["unchecked"] += rows
                before = dict(_read_digests({end})).get(end, "")
                continue
            print_now = compute_fingerprint(first, end)
            if known is not None and known.fingerprint == print_now and known.before == before:
                counts["compared"] += rows
            else:
                known = _verify_range(first, end, before, print_now)
                self._blocks[number] = known
                counts["verified"] += rows
            findings += known.findings
            before = known.end
        return counts

    def _is_late(self, began: float) -> bool:
        return self._budget_seconds is not None and self._monotonic() - began > self._budget_seconds

    def _read_heads(self) -> tuple[list[Head], list[Finding]]:
        """Return the statements kept elsewhere, read before the rows."""
        heads, findings = [], []
        lines = witness.LAST_LINES if self._blocks else None
        for ask in (lambda: [witness.read_server_head()], lambda: witness.read_disk_heads(self._folder, lines)):
            try:
                heads += [head for head in ask() if head is not None]
            except ForgedHead as error:
                findings.append(Finding("forged", 0, str(error)))
            except (redis.RedisError, OSError):
                continue
        return heads, findings


def compute_fingerprint(first: int, last: int) -> str:
    """Return the SHA-256 of the rows as the database has them, uninterpreted; "" if it can't read them."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(_FINGERPRINTS[connection.vendor], [first, last])
            (text,) = cursor.fetchone()
    except OperationalError:
        return ""  # bytes that are not text; reading row by row shows which
    return hashlib.sha256((text or "").encode("utf-8", "surrogateescape")).hexdigest()


_FIELDS = ("id", "sequence", "previous", "digest", *CONTENT)
_FINGERPRINTS = {
    "sqlite": "SELECT group_concat(line, char(10)) FROM (SELECT "
    + " || '|' || ".join(f'quote("{name}")' for name in _FIELDS)
    + " AS line FROM console_auditentry WHERE sequence BETWEEN %s AND %s ORDER BY sequence)",
    "postgresql": "SELECT encode(sha256(convert_to(string_agg(entry::text, E'\\n' ORDER BY sequence),"
    " 'UTF8')), 'hex') FROM console_auditentry AS entry WHERE sequence BETWEEN %s AND %s",
}


def _verify_range(first: int, last: int, before: str, print_now: str) -> _Block:
    findings: list[Finding] = []
    end = before
    for judge_row in _judge_rows(_read(first, last), first, last, before):
        if isinstance(judge_row, Finding):
            findings.append(judge_row)
        else:
            end = judge_row
    return _Block(print_now, before, end, findings)


def _read(first: int, last: int) -> list[dict[str, Any]]:
    """Return the rows in order; of an unreadable row (invalid time, JSON, or text) only its place."""
    rows = AuditEntry.objects.filter(sequence__range=(first, last)).order_by("sequence")
    try:
        return list(rows.values(*COLUMNS))
    except UNREADABLE:
        return [_read_one(key, sequence) for key, sequence in rows.values_list("pk", "sequence")]


def _read_one(key: int, sequence: int) -> dict[str, Any]:
    try:
        return cast(dict[str, Any], AuditEntry.objects.values(*COLUMNS).get(pk=key))
    except UNREADABLE:
        return {"pk": key, "sequence": sequence, "digest": "", "unreadable": True}


def _judge_rows(rows: Iterable[dict[str, Any]], first: int, last: int, before: str) -> Iterator[Finding | str]:
    """Return the problems of the rows, and each row's digest. before "": unknown."""
    expected, key = first, 0
    for row in rows:
        sequence = row["sequence"]
        if sequence > expected:
            yield _find_missing(expected, sequence - 1)
            before = ""
        if sequence < expected:
            yield Finding("inserted", sequence, f"Entry {sequence} exists twice.", str(row["pk"]))
        yield from _find_faults(row, before, key)
        expected, before, key = sequence + 1, row["digest"], row["pk"]
        yield row["digest"]
    if expected <= last:
        yield _find_missing(expected, last)


def _find_faults(row: dict[str, Any], before: str, key: int) -> Iterator[Finding]:
    sequence, digest = row["sequence"], row["digest"]
    if "unreadable" in row:
        yield Finding("altered", sequence, f"Entry {sequence} can't be read: it was altered.")
        return
    at = f"{row['at']:%Y-%m-%d %H:%M:%S}" if row["at"] else "no time"
    about = f"{sequence} ({at}, {row['actor']}, {row['action']})"
    content = {name: row[name] for name in CONTENT}
    if not is_genuine(content, sequence, row["previous"], digest):
        text = f"Entry {about} does not match its digest: it was altered or inserted."
        yield Finding("altered", sequence, text, hashlib.sha256(repr(row).encode("utf-8", "replace")).hexdigest()[:16])
    elif before and row["previous"] != before:
        yield Finding("reordered", sequence, f"Entry {about} does not follow the previous entry.", digest[:16])
    elif row["pk"] <= key:
        yield Finding("reordered", sequence, f"Entry {about} was moved.", f"{row['pk']}")


def _find_missing(first: int, last: int) -> Finding:
    which = f"Entry {first} is" if first == last else f"Entries {first} to {last} are"
    return Finding("missing", first, f"{which} missing.", str(last))


def _load_previous_digest(first: int | None) -> Iterator[Finding]:
    if first is not None and first < 1:
        yield Finding("inserted", first, f"Entries were inserted before the first: the chain starts at 1, not {first}.")


def _too_many(entries: int, last: int) -> Iterator[Finding]:
    if entries > last:
        yield Finding(
            "inserted", last, (f"The table has {entries} rows, but the chain has {last} entries."), str(entries)
        )


def _compare_heads(heads: Sequence[Head], tip: Head) -> Iterator[Finding]:
    """Return the problems of recorded heads that are missing."""
    longest = max(heads, key=lambda head: head.sequence, default=tip)
    if longest.sequence > tip.sequence:
        first, last = tip.sequence + 1, longest.sequence
        which = f"Entry {first} is" if first == last else f"Entries {first} to {last} are"
        text = f"{which} missing at the end: {longest.place} recorded {last} entries."
        yield Finding("cut", first, text, longest.digest[:16])
    digests = dict(_read_digests({head.sequence for head in heads}))
    for head in heads:
        there = digests.get(head.sequence)
        if there is not None and there != head.digest:
            text = f"Entry {head.sequence} differs from the entry that {head.place} recorded: the chain was rewritten."
            yield Finding("altered", head.sequence, text, there[:16])


def _read_digests(sequences: set[int]) -> Iterator[tuple[int, str]]:
    ordered = sorted(sequences)
    for place in range(0, len(ordered), 500):
        chosen = AuditEntry.objects.filter(sequence__in=ordered[place : place + 500])
        yield from chosen.values_list("sequence", "digest")


def _find_unprotected() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        for name in append_only.list_missing(connection.vendor, cursor):
            yield Finding("unprotected", 0, (f"The trigger {name}, which protects the audit log, is missing."), name)


def _sort_findings(findings: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Return findings as (open, accepted by an administrator at the host: `manage.py audit accept`).

    An accepted forged head is moved away, so a remaining one is another.
    """
    listed = list(findings)
    if not listed:
        return [], []
    known: set[str] = set()
    for row in AuditEntry.objects.filter(action=ACCEPT).values(*COLUMNS):
        content = {name: row[name] for name in CONTENT}
        if is_genuine(content, row["sequence"], row["previous"], row["digest"]):
            known.update(row["after"].get("findings", []))
    accepted = [finding for finding in listed if finding.kind != "forged" and finding.key in known]
    return [finding for finding in listed if finding not in accepted], accepted
