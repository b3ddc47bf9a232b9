"""Where rates are expected, in the snapshot."""

from queues.stored_document import StoredDocument


class RateChange(StoredDocument, frozen=True, kw_only=True):
    """A rate went to another level at a time, and stayed there: from `before` to `after`, events/s."""

    at: float
    before: float
    after: float


class ExpectedBand(StoredDocument, frozen=True, kw_only=True):
    """low, high: where the mean of this minute is expected, events/s; days: of the past that it rests on.
    minute: the mean of the newest whole minute; None: nothing was measured in it. changes: the newest of the
    last day, the earliest first.
    """

    low: float
    high: float
    days: float
    minute: float | None = None
    changes: list[RateChange] = []


class ExpectedBands(StoredDocument, frozen=True, kw_only=True):
    """By the rate's name: `in_per_second` or `out_per_second`; of all queues together and of each queue."""

    totals: dict[str, ExpectedBand] = {}
    queues: dict[str, dict[str, ExpectedBand]] = {}
