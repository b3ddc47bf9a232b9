"""How an event has its effect exactly once, though it may be delivered more than once.

Delivery is at least once: a worker may die after its handler succeeded and before its acknowledgement, a
producer may send a block again whose outcome it never learned. What makes the effect single is that a
handler recognises what it has already done. Every event carries an id (the producer's own, or `{block
id}:{row}`), and a block that travels twice keeps its ids.

- `sql` recognises the event: `INSERT … ON CONFLICT (queue, id) DO NOTHING`, a worker's blocks in one
  transaction: all of them or none. The rows that were there already are the duplicates. An event that a
  producer sent in two different blocks under one id is kept once as well.
- `parquet` recognises the block: an index beside the archive holds each block's id with the file it went
  to, and the order of steps is such that a crash can only leave what the next worker finishes
  (`workers.consumer.handlers.parquet`).
- `webhook` lets the receiver recognise the block: the header `Idempotency-Key` is its id (and the rows,
  while poison is being separated), and the body under a key is always the same. When the receiver answers
  409, or with `Idempotency-Replayed: true`, the events count as duplicates.
- `python:…` leaves it to the callable: each event carries its `id`; after a crash it may get the
  same id again, and must not mind.
- `emulate` and `noop` have no effect outside the worker.

`effects` counts what was really done, `duplicates` what had been done before and was recognised. Published
= effects + dead letters, once the queue is empty, whatever died in between; `handled = effects +
duplicates` may be larger.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Failure:
    """A block (by its place in the list given to the handler) that was not handled, and why.

    `poison`: the events themselves are at fault, trying again can't help. `transient`: what the handler
    needs is out of order, so that the events can't be blamed: they are not separated on the last try.
    `delay_seconds`: not to be tried again before. `untried`: nobody has called the handler with it; that is
    no try.
    """

    block: int
    error: str
    poison: bool = False
    transient: bool = False
    delay_seconds: float = 0.0
    untried: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a handler did: events that had an effect now, events that had it before, blocks that failed.

    `completions`: of a handler that works block by block, when (monotonic s) how many events of the call were
    done; without them all were at its end.
    """

    effects: int = 0
    duplicates: int = 0
    failures: tuple[Failure, ...] = field(default_factory=tuple)
    # When it was done is no part of what was done: equal outcomes may be of different times.
    completions: tuple[tuple[float, int], ...] = field(default=(), compare=False)

    def plus(self, other: "Outcome") -> "Outcome":
        """Counts added; failures are not carried over, their block numbers belong to one call."""
        done = (*self.completions, *other.completions)
        return Outcome(self.effects + other.effects, self.duplicates + other.duplicates, completions=done)
