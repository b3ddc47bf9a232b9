"""What the plant's parts are found to be, evaluated once a second (`workers.snapshot.states`): one state
a subject, read by every page, alert and list that says how something is.
"""

from typing import Literal

from queues.stored_document import StoredDocument

Severity = Literal["well", "unknown", "notice", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("well", "unknown", "notice", "warning", "critical")  # from good to bad
KINDS = ("plant", "pipeline", "application", "node", "queue", "host", "loop")


class SubjectFinding(StoredDocument, frozen=True, kw_only=True):
    """What is wrong with a subject ("kind/name"; "" of several alike), as the headline's list has it."""

    subject: str
    severity: Severity
    sign: str | None
    sentence: str
    step: str = ""
    since: float | None = None


class SubjectState(StoredDocument, frozen=True, kw_only=True, gc=False):
    """One subject: `kind` (of KINDS) and name; it stands under "kind/name".

    severity: how bad it is. sign: of `node_state.STATES`, the colour and the glyph that it is drawn with;
    None while nothing is known. word: what people read beside the sign. stale: what is shown of it is old.
    since: since when it is as severe (s since 1970). finding: what is wrong, in a sentence; "" where
    nothing is. also: what else is wrong with it. step: what to do first. within: the subject that explains
    it ("kind/name"); lists and sentences name that one. rules: names of the alert rules beyond whose
    threshold it is, whose alerts fire once that has lasted.
    """

    kind: str
    name: str
    severity: Severity = "well"
    sign: str | None = None
    word: str = ""
    stale: bool = False
    since: float | None = None
    finding: str = ""
    also: list[SubjectFinding] = []
    step: str = ""
    within: str | None = None
    rules: list[str] = []
