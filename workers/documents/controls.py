"""What may be steered of an application while it runs (`weir:pipeline:controls:{app}`), as values;
`workers.pipeline.declaration.controls` checks them, and says what they come to.
"""

from collections.abc import Mapping

from queues.stored_document import StoredDocument


class CriterionHold(StoredDocument, frozen=True, kw_only=True):
    """What a person has put in the place of a criterion's value. until_seconds: since 1970, None:
    no end.
    """

    value: float
    until_seconds: float | None
    owner: str
    reason: str


class ControlValues(StoredDocument, frozen=True, kw_only=True):
    """admit_events_per_second: most events dispatched (null: as many as the result queue has room
    for). reserve_bytes: of the result queue, that admission leaves free (`reserve`); where it does, the
    rate may be exceeded to catch up. admit_until_seconds: when both end by themselves (1970; null:
    never). admit_events_per_batch: most events of one dispatch (0 admits none).
    combine_events_per_batch: about as many rows the combiner takes at once; what is shed changes
    from batch to batch. shares: replica → share of the
    events (a replica that is not named gets an equal one). parallelism: most tasks of a replica's
    batch, and of an operator that `tasks` does not name. result_bytes: what the result queue may
    hold. lateness_seconds: how far behind the newest event an event may still come. ahead_seconds:
    how far ahead of this host's clock an event may be. hold_seconds: how long an unreachable node
    holds the watermark back. criteria: name → value, for rules that name them. held_criteria: name
    → what a person has put in the place of that value. shed: pattern → type → share of the events
    that the pattern does without. shed_until_seconds: when that ends by itself (1970; null: never).
    shed_by: what gets its shed decision as one (`shedder`).
    spared_keys_share: the share of the keys of which nothing is shed. revision: counts changes.
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
