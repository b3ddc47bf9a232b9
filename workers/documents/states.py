"""States of the plant's subjects, evaluated once a second (`workers.snapshot.states`).

Each subject has one state, which every page, alert, and list uses.
"""

from typing import Annotated, Literal

from common.stored_document import Instant, StoredDocument, describe
from workers.documents.nodes import NodeState

Severity = Literal["well", "unknown", "notice", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("well", "unknown", "notice", "warning", "critical")  # from good to bad
KINDS = ("plant", "pipeline", "application", "node", "queue", "host", "loop")


class SuggestedAction(StoredDocument, frozen=True, kw_only=True):
    """An action that ends the cause of a problem, or its impact; the console makes a button of it."""

    action: Annotated[str, describe("The permission it needs, such as queue.pause.")]
    subject: Annotated[str, describe('What it changes, as "kind/name".')]
    value: Annotated[str, describe("The part or value, such as consumption.")] = ""
    words: Annotated[str, describe("The text of its button: a verb and its object.")]
    effect: Annotated[str, describe("What it changes, and what it can't change, in sentences.")] = ""


def build_action_key(action: str, subject: str, value: str) -> str:
    """Return the ID of an action's button on a page."""
    return f"{action}-{subject}-{value}".translate(str.maketrans("./@ ", "----"))


class SubjectFinding(StoredDocument, frozen=True, kw_only=True):
    """A problem of a subject, as the headline's list shows it."""

    subject: Annotated[str, describe('"kind/name"; "" for several similar subjects.')]
    severity: Severity
    sign: NodeState | None
    sentence: str
    step: Annotated[str, describe("The recommended first step.")] = ""
    since: Instant | None = None
    impact: Annotated[str, describe("Who is affected, with numbers and limits.")] = ""
    affected: Annotated[list[str], describe('Subjects that this cause explains ("kind/name").')] = []
    actions: Annotated[list[SuggestedAction], describe("The best action first; none if the loops handle it.")] = []
    incident: Annotated[int | None, describe("The number of its open incident.")] = None
    opens_at: Annotated[
        Instant | None, describe("When its incident opens if the problem lasts; null: it is open, or no rule counts.")
    ] = None


class SubjectState(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The state of a subject, which pages and alerts share; its key is "kind/name"."""

    kind: Annotated[str, describe(values=KINDS)]
    name: str
    severity: Severity = "well"
    sign: Annotated[
        NodeState | None, describe("The state that sets the color and icon of the subject; null: nothing is known.")
    ] = None
    word: Annotated[str, describe("The text beside the sign.")] = ""
    stale: Annotated[bool, describe("Whether its data is out of date.")] = False
    since: Annotated[Instant | None, describe("Start of this severity.")] = None
    finding: Annotated[str, describe("The problem in a sentence.")] = ""
    also: Annotated[list[SubjectFinding], describe("Other problems.")] = []
    step: Annotated[str, describe("The recommended first step.")] = ""
    late: Annotated[bool, describe("Whether a queue's events take longer than a rule permits.")] = False
    impact: Annotated[str, describe("Who is affected if the subject is a cause, with numbers and limits.")] = ""
    affected: Annotated[list[str], describe('Subjects that it explains as their cause ("kind/name").')] = []
    actions: Annotated[list[SuggestedAction], describe("Actions against this cause, the best first.")] = []
    independent: Annotated[bool, describe("Whether no other problem can be its cause.")] = False
    # Lists and sentences name that one instead.
    within: Annotated[str | None, describe('The subject that explains the problem ("kind/name").')] = None
    # Their alerts fire after their duration.
    rules: Annotated[list[str], describe("The alert rules whose threshold it exceeds.")] = []


class Problem(StoredDocument, frozen=True, kw_only=True):
    """A problem that no other problem explains, until 30 minutes after its end."""

    subject: Annotated[str, describe('"kind/name".')]
    finding: Annotated[str, describe("The most recent sentence that describes the problem.")] = ""
    began_at: Instant
    ended_at: Annotated[Instant | None, describe("null: the problem lasts.")] = None
    affected: Annotated[list[str], describe('Subjects that the problem explained while it lasted ("kind/name").')] = []
    returns_to: Annotated[str, describe('What the subject does again after the problem, such as "keeps up".')] = ""
    recovery: Annotated[str, describe("A sentence about how the problem ended.")] = ""


def build_finding_key(finding: SubjectFinding) -> str:
    """Return what identifies a problem in the next snapshot: a subject can have several, with different actions."""
    action = finding.actions[0].words if finding.actions else ""
    return f"{finding.subject}#{finding.incident or ''}#{action}"
