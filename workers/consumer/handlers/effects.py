"""Exactly-once effects of events that may be delivered more than once.

Delivery is at least once: a worker may die after its handler succeeded and before its acknowledgment, and a producer
may resend a block whose outcome it never received. The effect occurs once because a handler recognizes what it has
already done. Every event has an id (the producer's own, or `{block id}:{row}`), and a block that is sent twice keeps
its ids.

- `sql` recognizes the event: `INSERT … ON CONFLICT (queue, id) DO NOTHING`, a worker's blocks in one
  transaction: all of them or none. Rows that existed already are the duplicates. An event that a producer
  sent in two different blocks under one id is also stored once.
- `parquet` recognizes the block: an index beside the archive has each block's id with its file, and the steps
  are ordered so that a crash can only leave what the next worker completes
  (`workers.consumer.handlers.parquet`).
- `webhook` lets the receiver recognize the block: the header `Idempotency-Key` is its id (and the rows,
  during the separation of poison), and the body under a key is always the same. When the receiver answers
  409, or with `Idempotency-Replayed: true`, the events count as duplicates.
- `python:…` leaves it to the callable: each event has its `id`; after a crash it may get the same id again,
  and must tolerate that.
- `emulate` and `noop` have no effect outside the worker.

`effects` counts new effects, `duplicates` recognized repetitions. Published = effects + dead letters once the queue is
empty, whatever died in between; `handled = effects + duplicates` may be larger.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Failure:
    """A block (by its index in the list given to the handler) that was not handled, and why.

    `poison`: the events themselves are at fault, so retries are useless. `transient`: a dependency of the
    handler is unavailable, so the events are not to blame and are not separated on the last try.
    `delay_seconds`: the minimum delay before a retry. `untried`: the handler was not called with it, so this
    counts as no try.
    """

    block: int
    error: str
    poison: bool = False
    transient: bool = False
    delay_seconds: float = 0.0
    untried: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a handler: new effects, repeated effects, and failed blocks.

    `completions`: for a handler that works block by block, when (monotonic s) how many events of the call
    were done; without them, all were done at its end.
    """

    effects: int = 0
    duplicates: int = 0
    failures: tuple[Failure, ...] = field(default_factory=tuple)
    # The time is not part of the result: equal outcomes may be of different times.
    completions: tuple[tuple[float, int], ...] = field(default=(), compare=False)

    def add_counts(self, other: "Outcome") -> "Outcome":
        """Return the sum of the counts; failures are left out, since their indexes belong to one call."""
        done = (*self.completions, *other.completions)
        return Outcome(self.effects + other.effects, self.duplicates + other.duplicates, completions=done)
