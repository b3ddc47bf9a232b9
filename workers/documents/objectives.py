"""Service level objectives in the snapshot, and their remaining error budgets."""

from common.stored_document import StoredDocument


class RunningMinute(StoredDocument, frozen=True, kw_only=True):
    """The counts of the current minute, for an objective in this revision.

    minute: since 1970. carried: bad units that are counted in the next seconds.
    """

    revision: int
    minute: int
    bad: float
    total: float
    carried: float = 0.0


class ObjectiveStatus(StoredDocument, frozen=True, kw_only=True):
    """An objective.

    target: the promised share of what is counted over window_days. kind, subject: what it is about; a subject "" is
    each of that kind. unit: s or events. pays_for: what its budget may be spent on ("" for nothing that a loop does).
    bad, total: counts. left: how much more may be bad; left_share: as a share of the budget; None where nothing was
    counted. window_budget: how much may be bad in the whole window, if its rest is like the counted part.
    bad_per_second, per_second: now; None while unknown. burn: pair of windows → the burn rate that is judged
    (`controllers.design.error_budget`). running: the current minute, for an observer that takes over. last_error: why
    it is not counted.
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
        """Return the remaining share of the whole window's budget; below 0, it is overspent."""
        return 1 - self.bad / self.window_budget if self.window_budget else None
