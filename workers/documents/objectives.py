"""Service level objectives in the snapshot, and their remaining error budgets."""

from typing import Annotated

from common.stored_document import Share, StoredDocument, describe

ObjectiveKind = Annotated[str, describe(values=("plant", "queue", "application"))]
PaysFor = Annotated[str, describe("What its budget may be spent on.", values=("", "throttle", "shed"))]


class RunningMinute(StoredDocument, frozen=True, kw_only=True):
    """The counts of the current minute, for an objective in this revision."""

    revision: Annotated[int, describe("The objective's revision.")]
    minute: Annotated[int, describe("Since 1970.")]
    bad: float
    total: float
    carried: Annotated[
        float, describe("Bad seconds or events that are not yet counted; the next seconds include them.")
    ] = 0.0


class ObjectiveStatus(StoredDocument, frozen=True, kw_only=True):
    """The status of an objective, in seconds or events (`unit`)."""

    target: Annotated[Share, describe("The promised share of what is counted over the window.")]
    window_days: float
    kind: ObjectiveKind = "plant"
    subject: Annotated[str, describe("Empty: each of its kind.")] = ""
    unit: Annotated[str, describe(values=("s", "events"))] = "s"
    pays_for: PaysFor = ""
    bad: float = 0.0
    total: Annotated[float, describe("Seconds or events counted in the window, without unknown parts.")] = 0.0
    left: Annotated[float, describe("Remaining error budget; below 0: overspent. Loops use this value.")] = 0.0
    left_share: Annotated[float | None, describe("Remaining share of the budget; null: nothing was counted.")] = None
    window_budget: Annotated[
        float | None, describe("Error budget of the whole window, extrapolated from the counted part.")
    ] = None
    bad_per_second: float | None = None
    per_second: float | None = None
    burn: Annotated[dict[str, float | None], describe("Burn rate by pair of windows.")] = {}
    running: Annotated[RunningMinute | None, describe("For an observer that takes over; null: already stored.")] = None
    last_error: Annotated[str | None, describe("Why the objective is not evaluated.")] = None

    @property
    def window_left_share(self) -> float | None:
        """Return the remaining share of the whole window's budget; below 0, it is overspent."""
        return 1 - self.bad / self.window_budget if self.window_budget else None
