"""Open alerts in the snapshot, and the audit findings that alerts read."""

from typing import Annotated

from common.stored_document import Instant, StoredDocument, describe

Labels = Annotated[dict[str, str], describe("Subject: queue, node, loop, and others, by name.")]


class AlertStatus(StoredDocument, frozen=True, kw_only=True):
    """An open alert."""

    id: int
    severity: Annotated[str, describe(values=("notice", "warning", "critical"))]
    rule: str = ""
    condition: Annotated[str, describe("The condition of its rule; empty: the rule was deleted.")] = ""
    title: str = ""
    state: Annotated[str, describe(values=("pending", "firing", "acknowledged", "resolved"))] = "firing"
    labels: Labels = {}
    sentence: Annotated[str, describe("A summary of the problem with its current values.")] = ""
    since: Annotated[Instant | None, describe("When the alert last fired.")] = None
    recurrence: Annotated[str, describe('How often the alert fired recently, such as "third time in 20 min".')] = ""
    under: Annotated[int | None, describe("ID of the alert that explains this alert.")] = None
    root: Annotated[str, describe('The subject that causes the alert ("kind/name"), if known.')] = ""
    explanation: Annotated[str, describe("Description of the pause or drain that explains the alert.")] = ""
    quiet: Annotated[
        Annotated[str, describe(values=("explained", "paused", "silenced", "acknowledged", "snoozed"))] | None,
        describe("Why notifications are suppressed; null: not suppressed."),
    ] = None
    quiet_until: Instant | None = None
    acknowledged_by: str | None = None
    value: Annotated[float | None, describe("The current value, in the unit of its condition.")] = None
    round: Annotated[int, describe("Number of escalations started.")] = 0
    step: Annotated[int, describe("The next step of its escalation.")] = 0
    announce: Annotated[str | None, describe("The text of a browser notification.")] = None


class AuditFinding(StoredDocument, frozen=True, kw_only=True):
    """A place where the audit log was changed (`console.audit.check`)."""

    kind: str = ""
    sequence: Annotated[int, describe("The first affected row.")] = 0
    text: str
    mark: str = ""


class AuditHead(StoredDocument, frozen=True, kw_only=True):
    """A row of the audit log, by its number, and its digest."""

    sequence: int = 0
    digest: str = ""


class AuditVerdict(StoredDocument, frozen=True, kw_only=True):
    """The result of the last check of the audit log (`weir:audit:verdict`)."""

    at: Annotated[Instant, describe("Time of the check.")]
    sound: bool = True
    entries: Annotated[int, describe("Number of rows.")] = 0
    verified: Annotated[int, describe("Number of rows whose digests were computed in this check.")] = 0
    compared: Annotated[int, describe("Number of rows compared by fingerprint.")] = 0
    unchecked: Annotated[int, describe("Number of rows left for the next check.")] = 0
    heads: Annotated[int, describe("Number of statements stored elsewhere.")] = 0
    last: Annotated[AuditHead, describe("The newest row.")] = AuditHead()
    seconds: Annotated[float, describe("Duration of the check, s.")] = 0.0
    findings: Annotated[list[AuditFinding], describe("The first findings.")] = []
    findings_count: int = 0
    accepted: Annotated[list[AuditFinding], describe("Findings that a person has accepted.")] = []
