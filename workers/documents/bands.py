"""Expected ranges of rates, in the snapshot."""

from common.stored_document import StoredDocument


class RateChange(StoredDocument, frozen=True, kw_only=True):
    """A lasting change of a rate to another level, from `before` to `after`, events/s."""

    at: float
    before: float
    after: float


class ExpectedBand(StoredDocument, frozen=True, kw_only=True):
    """The expected range of a rate.

    low, high: limits of this minute's expected mean, events/s; days: the days of the past that it is based on. minute:
    the mean of the newest whole minute; None: nothing was measured in it. changes: the newest changes of the last day,
    the earliest first.
    """

    low: float
    high: float
    days: float
    minute: float | None = None
    changes: list[RateChange] = []


class ExpectedBands(StoredDocument, frozen=True, kw_only=True):
    """Expected ranges of `in_per_second` and `out_per_second`, of all queues together and of each queue."""

    totals: dict[str, ExpectedBand] = {}
    queues: dict[str, dict[str, ExpectedBand]] = {}
