"""States of the plant's subjects, evaluated once a second (`workers.snapshot.states`).

Each subject has one state, which every page, alert, and list uses.
"""

from typing import Literal

from common.stored_document import StoredDocument

Severity = Literal["well", "unknown", "notice", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("well", "unknown", "notice", "warning", "critical")  # from good to bad
KINDS = ("plant", "pipeline", "application", "node", "queue", "host", "loop")


class SubjectFinding(StoredDocument, frozen=True, kw_only=True):
    """A problem of a subject ("kind/name"; "" for several alike), as the headline's list shows it."""

    subject: str
    severity: Severity
    sign: str | None
    sentence: str
    step: str = ""
    since: float | None = None


class SubjectState(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The state of one subject: `kind` (of KINDS) and name; its key is "kind/name".

    severity: how bad it is. sign: of `node_state.STATES`, its color and glyph; None while nothing is known.
    word: the text beside the sign. stale: its displayed data is outdated. since: since when it has this severity (s
    since 1970). finding: the problem in a sentence; "" without one. also: its other problems.
    step: the first remedy. within: the subject that explains it ("kind/name"); lists and sentences name that one
    instead. rules: names of the alert rules whose threshold it exceeds and whose alerts fire after their duration.
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
