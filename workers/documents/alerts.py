"""Open alerts as the snapshot has them."""

from queues.stored_document import StoredDocument


class AlertStatus(StoredDocument, frozen=True, kw_only=True):
    """condition: what its rule watches, "" where there is no rule any more. quiet: why nobody is notified
    (explained, paused, silenced, snoozed, acknowledged), None where somebody is; quiet_until: how long.
    under: the alert that explains it; explanation: the pause or drain that does, in words. announce: what a
    browser shows once. round, step: how often it was announced, and to how many of its receivers. Times are
    seconds since 1970.
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
