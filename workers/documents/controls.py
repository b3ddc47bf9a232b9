"""Values of an application that can be changed while it runs (`weir:pipeline:controls:{app}`).

`workers.pipeline.declaration.controls` validates them and explains their effects.
"""

from collections.abc import Mapping
from typing import Annotated

from common.stored_document import Bytes, Events, Instant, PerSecond, Seconds, Share, StoredDocument, describe


class CriterionHold(StoredDocument, frozen=True, kw_only=True):
    """A person's value in place of a criterion's own."""

    value: float
    until_seconds: Annotated[Instant | None, describe("Unix time; null: no expiry.")]
    owner: str
    reason: str


class ControlValues(StoredDocument, frozen=True, kw_only=True):
    """Controls of an application."""

    admit_events_per_second: Annotated[
        PerSecond | None,
        describe("Maximum dispatch rate (up to 1.5 times as much to catch up); null: limited only by free space."),
    ] = None
    reserve_bytes: Annotated[float, describe("Bytes of the result queue that admission keeps free.")] = 0.0
    admit_until_seconds: Annotated[Instant | None, describe("When the rate and the reserve expire.")] = None
    admit_events_per_batch: Annotated[Events, describe("Maximum events of one dispatch; 0 admits none.")] = 200_000
    combine_events_per_batch: Annotated[
        Events, describe("Approximate rows that the combiner takes at once; shedding changes from batch to batch.")
    ] = 600_000
    shares: Annotated[
        Mapping[str, Share], describe("Shares of the events, by replica; others get an equal share.")
    ] = {}
    parallelism: Annotated[
        int, describe("Maximum tasks of a replica's batch, and of an operator without an entry in `tasks`.")
    ] = 2
    tasks: Annotated[Mapping[str, int], describe("Number of tasks by operator.")] = {}
    result_bytes: Annotated[Bytes, describe("Capacity of the result queue.")] = 128 * 2**20
    lateness_seconds: Annotated[Seconds, describe("Maximum delay of an event behind the newest one, s.")] = 5.0
    latency_seconds: Annotated[
        Seconds | None, describe("Target time from an event to its complex events, s; null: no target.")
    ] = None
    ahead_seconds: Annotated[Seconds, describe("How far ahead of this host's clock an event may be, s.")] = 60.0
    hold_seconds: Annotated[Seconds, describe("How long an unreachable node holds the watermark back, s.")] = 15.0
    criteria: Annotated[Mapping[str, float], describe("Values by name, for rules that name them.")] = {}
    held_criteria: Mapping[str, CriterionHold] = {}
    shed: Annotated[
        Mapping[str, Mapping[str, Share]], describe("Withheld shares, keyed by pattern, then by type.")
    ] = {}
    shed_rows: Annotated[
        float | None, describe("Due rows of a batch up to which `shed` applies; null: any number.")
    ] = None
    shed_reduced: Annotated[
        Mapping[str, Mapping[str, Share]], describe("Withheld shares in a batch with twice as many rows, or more.")
    ] = {}
    shed_until_seconds: Annotated[Instant | None, describe("When shedding expires; null: no expiry.")] = None
    shed_by: Annotated[str, describe("The unit of a shedding decision.")] = "event"
    shed_events_of: Annotated[Mapping[str, bool], describe("Patterns that shed single events in any case.")] = {}
    spared_keys_share: Annotated[Share, describe("Share of control keys, of which nothing is shed.")] = 0.02
    revision: Annotated[int, describe("Number of changes.")] = 0
