"""Open alerts in the snapshot, and the audit findings that alerts read."""

from common.stored_document import StoredDocument


class AlertStatus(StoredDocument, frozen=True, kw_only=True):
    """An open alert.

    condition: what its rule watches, "" where the rule no longer exists. quiet: why notifications are suppressed
    (explained, paused, silenced, snoozed, acknowledged), None where they are not; quiet_until: how long. under: the
    alert that explains it; explanation: the pause or drain that explains it, in words.
    announce: what a browser shows once. round, step: how often it was announced, and to how many of its receivers.
    Times are seconds since 1970.
    """

    id: int
    severity: str
    rule: str = ""
    condition: str = ""
    title: str = ""
    state: str = "firing"
    labels: dict[str, str] = {}
    sentence: str = ""
    since: float | None = None
    under: int | None = None
    explanation: str = ""
    quiet: str | None = None
    quiet_until: float | None = None
    acknowledged_by: str | None = None
    value: float | None = None
    round: int = 0
    step: int = 0
    announce: str | None = None


class AuditFinding(StoredDocument, frozen=True, kw_only=True):
    """A place where the audit log was changed, from the row `sequence` on (`console.audit.check`)."""

    kind: str = ""
    sequence: int = 0
    text: str
    mark: str = ""


class AuditHead(StoredDocument, frozen=True, kw_only=True):
    """A row of the audit log, by its number, and its digest."""

    sequence: int = 0
    digest: str = ""


class AuditVerdict(StoredDocument, frozen=True, kw_only=True):
    """The result of the last check of the audit log (`weir:audit:verdict`).

    at: time of the check, seconds since 1970. entries: number of rows; verified: rows whose digests were computed in
    this check; compared: rows compared by fingerprint; unchecked: rows left for the next check.
    heads: statements stored elsewhere; last: the newest row. findings: the first of `findings_count`;
    accepted: those that a person has accepted. seconds: duration of the check.
    """

    at: float
    sound: bool = True
    entries: int = 0
    verified: int = 0
    compared: int = 0
    unchecked: int = 0
    heads: int = 0
    last: AuditHead = AuditHead()
    seconds: float = 0.0
    findings: list[AuditFinding] = []
    findings_count: int = 0
    accepted: list[AuditFinding] = []
