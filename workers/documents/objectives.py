"""Service levels as the snapshot has them: what is promised, and what is left to miss of it."""

from queues.stored_document import StoredDocument


class RunningMinute(StoredDocument, frozen=True, kw_only=True):
    """What was counted of a minute that is not over, of an objective as it was in this revision. minute:
    since 1970. carried: what was bad, and is counted in the next seconds.
    """

    revision: int
    minute: int
    bad: float
    total: float
    carried: float = 0.0


class ObjectiveStatus(StoredDocument, frozen=True, kw_only=True):
    """target: the share that is promised, of what is counted over window_days. kind, subject: of what; a
    subject "" is each of that kind. unit: s or events. pays_for: what its budget may be spent on ("" for
    nothing that a loop does). bad, total: what was counted. left: how much more of that may be bad;
    left_share: of its budget; None where nothing was counted. window_budget: how much may be bad in the whole
    window, if the rest of it is like what was counted. bad_per_second, per_second: now; None while that is
    not known.
    burn: pair of windows → the burn rate that is judged (`controllers.design.error_budget`). running: for who
    takes over where the observer is killed. last_error: why it is not counted.
    """

    target: float
    window_days: float
    kind: str = "plant"
    subject: str = ""
    unit: str = "s"
    pays_for: str = ""
    bad: float = 0.0
    total: float = 0.0
    left: float = 0.0
    left_share: float | None = None
    window_budget: float | None = None
    bad_per_second: float | None = None
    per_second: float | None = None
    burn: dict[str, float | None] = {}
    running: RunningMinute | None = None
    last_error: str | None = None

    @property
    def window_left_share(self) -> float | None:
        """Of the budget of the whole window; below 0 it is overspent."""
        return 1 - self.bad / self.window_budget if self.window_budget else None
