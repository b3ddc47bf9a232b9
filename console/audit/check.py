"""Verification of the audit log: finds altered, missing, inserted, or reordered rows, and a truncated end.

Rows are verified in blocks of BLOCK_ROWS. Verification recomputes every digest; a verified block is later only compared
by a fingerprint of its rows as the database has them, which is much faster, and verified again if that differs. Each
check therefore covers all rows, and a long audit log is cheap to check.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import redis
from django.db import DatabaseError, OperationalError, close_old_connections, connection, connections
from django.db.models import Max, Min

from common.stored_document import convert, encode_document
from console.audit import witness
from console.audit.chain import CONTENT, ORIGIN, is_genuine
from console.audit.witness import ForgedHead, Head
from console.connections.control_server import control
from console.models import AuditEntry
from console.storage import append_only
from queues import keys
from workers.documents.alerts import AuditVerdict

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
        if ends["first"] is not None and ends["first"] < 1:
            text = f"Entries were inserted before the first: the chain starts at 1, not {ends['first']}."
            findings.append(Finding("inserted", ends["first"], text))
        counts = self._walk(last, began, findings)
        tip = Head(last, AuditEntry.objects.filter(sequence=last).values_list("digest", flat=True).first() or ORIGIN)
        findings += list(_compare_heads(heads, tip))
        with connection.cursor() as cursor:
            for name in append_only.list_missing(connection.vendor, cursor):
                text = f"The trigger {name}, which protects the audit log, is missing."
                findings.append(Finding("unprotected", 0, text, name))
        # Only rows that existed at the start: later ones are for the next check.
        entries = AuditEntry.objects.filter(sequence__lte=last).count()
        if entries > last:
            text = f"The table has {entries} rows, but the chain has {last} entries."
            findings.append(Finding("inserted", last, text, str(entries)))
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
            is_late = self._budget_seconds is not None and self._monotonic() - began > self._budget_seconds
            if is_late and known is None and end < last:
                counts["unchecked"] += rows
                before = dict(_read_digests({end})).get(end, "")
                continue
            print_now = compute_fingerprint(first, end)
            if known is not None and known.fingerprint == print_now and known.before == before:
                counts["compared"] += rows
            else:
                known = _Block(print_now, before, before)
                for judged in _judge_rows(_read(first, end), first, end, before):
                    if isinstance(judged, Finding):
                        known.findings.append(judged)
                    else:
                        known.end = judged
                self._blocks[number] = known
                counts["verified"] += rows
            findings += known.findings
            before = known.end
        return counts

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


def _read(first: int, last: int) -> list[dict[str, Any]]:
    """Return the rows in order; of an unreadable row (invalid time, JSON, or text) only its place."""
    rows = AuditEntry.objects.filter(sequence__range=(first, last)).order_by("sequence")
    with suppress(*UNREADABLE):
        return list(rows.values(*COLUMNS))
    listed: list[dict[str, Any]] = []
    for key, sequence in rows.values_list("pk", "sequence"):
        try:
            listed.append(cast(dict[str, Any], AuditEntry.objects.values(*COLUMNS).get(pk=key)))
        except UNREADABLE:
            listed.append({"pk": key, "sequence": sequence, "digest": "", "unreadable": True})
    return listed


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


logger = logging.getLogger(__name__)
# With the check of the alerter (2 s) an altered row raises an alert within a minute.
CHECK_SECONDS = 30.0
# Time limit for recomputing digests in a check; the rest of a long audit log follows in the next ones.
BUDGET_SECONDS = 5.0
MAX_SAID = 5


class AuditWatch:
    """`step` is one check; `run` checks until it is stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._checker = Checker(folder, BUDGET_SECONDS)

    def step(self, now: datetime) -> Verdict:
        verdict = self._checker.step()
        if verdict.sound and verdict.last.sequence:
            # The head of an audit log that was found intact is kept elsewhere.
            kept = witness.read_disk_heads(self._folder, 1)
            if not kept or kept[0].sequence < verdict.last.sequence:
                witness.keep(self._folder, verdict.last)
            witness.send_head(verdict.last.sequence, verdict.last.digest)
        said = verdict.document()
        said["findings"] = said["findings"][:MAX_SAID]
        try:
            document = convert(AuditVerdict, {"at": now.timestamp(), **said})
            control().set(keys.AUDIT_VERDICT, encode_document(document))
        except redis.RedisError as error:
            logger.warning("The findings of the audit check could not be published: %s", error)
        return verdict

    def run(self, stop: threading.Event) -> None:
        """Check repeatedly, the first time at once. An error is logged once, and the check is tried again."""
        in_trouble, wait_seconds = False, 0.0
        while not stop.wait(wait_seconds):
            wait_seconds = CHECK_SECONDS
            try:
                self.step(datetime.now(UTC))
                in_trouble = False
            except Exception as error:
                if not in_trouble:
                    logger.warning("The audit log can't be checked: %r", error)
                in_trouble = True
                if isinstance(error, DatabaseError):
                    close_old_connections()
        connections.close_all()
