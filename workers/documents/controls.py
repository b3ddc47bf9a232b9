"""Values of an application that can be changed while it runs (`weir:pipeline:controls:{app}`).

`workers.pipeline.declaration.controls` validates them and explains their effects.
"""

from collections.abc import Mapping

from common.stored_document import StoredDocument


class CriterionHold(StoredDocument, frozen=True, kw_only=True):
    """A criterion's value that a person has set in place of its own.

    until_seconds: since 1970; None: no expiry.
    """

    value: float
    until_seconds: float | None
    owner: str
    reason: str


class ControlValues(StoredDocument, frozen=True, kw_only=True):
    """Controls of an application.

    admit_events_per_second: maximum rate of dispatched events (null: as many as the result queue has room for).
    reserve_bytes: free space of the result queue that admission leaves (`reserve`); with it, the rate may be exceeded
    to catch up. admit_until_seconds: expiry of both (1970; null: none).
    admit_events_per_batch: maximum events of one dispatch (0 admits none). combine_events_per_batch: approximate number
    of rows that the combiner takes at once; shedding changes from batch to batch. shares: replica → share of the events
    (a replica without an entry gets an equal share). parallelism: maximum tasks of a replica's batch, and of an
    operator without an entry in `tasks`. result_bytes: capacity of the result queue. lateness_seconds: maximum delay of
    an event behind the newest one. ahead_seconds: how far ahead of this host's clock an event may be. hold_seconds: how
    long an unreachable node holds the watermark back.
    criteria: name → value, for rules that name them. held_criteria: name → the value that a person has set in its
    place. shed: pattern → type → share of the events that are withheld from the pattern.
    shed_until_seconds: expiry of the shedding (1970; null: none). shed_by: the unit of a shedding decision (`shedder`).
    spared_keys_share: the share of control keys, of which nothing is shed. revision: counts changes.
    """

    admit_events_per_second: float | None = None
    reserve_bytes: float = 0.0
    admit_until_seconds: float | None = None
    admit_events_per_batch: int = 200_000
    combine_events_per_batch: int = 600_000
    shares: Mapping[str, float] = {}
    parallelism: int = 2
    tasks: Mapping[str, int] = {}
    result_bytes: int = 128 * 2**20
    lateness_seconds: float = 5.0
    ahead_seconds: float = 60.0
    hold_seconds: float = 15.0
    criteria: Mapping[str, float] = {}
    held_criteria: Mapping[str, CriterionHold] = {}
    shed: Mapping[str, Mapping[str, float]] = {}
    shed_until_seconds: float | None = None
    shed_by: str = "event"
    spared_keys_share: float = 0.02
    revision: int = 0
