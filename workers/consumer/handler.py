"""The interfaces that the author of an event handler needs: its input, its outcome, its options, and its interface.

Exactly-once effects of events that may be delivered more than once: delivery is at least once. A worker may die after
its handler succeeded and before its acknowledgment, and a producer may resend a block whose outcome it never received.
The effect occurs once because a handler recognizes what it has already done. Every event has an id (the producer's own,
or `{block id}:{row}`), and a block that is sent twice keeps its ids.

- `sql` recognizes the event: `INSERT … ON CONFLICT (queue, id) DO NOTHING`, a worker's blocks in one transaction: all
  of them or none. Rows that existed already are the duplicates. An event that a producer sent in two different blocks
  under one id is also stored once.
- `parquet` recognizes the block: an index beside the archive has each block's id with its file, and the steps are
  ordered so that a crash can only leave what the next worker completes (`workers.consumer.handlers.parquet`).
- `webhook` lets the receiver recognize the block: the header `Idempotency-Key` is its id (and the rows, during the
  separation of poison), and the body under a key is always the same. When the receiver answers 409, or with
  `Idempotency-Replayed: true`, the events count as duplicates.
- `python:…` leaves it to the callable: each event has its `id`; after a crash it may get the same id again, and must
  tolerate that.
- `emulate` and `noop` have no effect outside the worker.

`effects` counts new effects, `duplicates` recognized repetitions. Published = effects + dead letters once the queue is
empty, whatever died in between; `handled = effects + duplicates` may be larger.
"""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from common import checks
from common.errors import BadInput


@cache
def _rows_as_text(power: int) -> pa.Array:
    """Return the first 2^power numbers. One cached array per block size would fill a process's memory within days."""
    return pc.cast(pa.array(range(1 << power), pa.int64()), pa.string())


@dataclass(frozen=True, slots=True)
class Delivery:
    """Rows from `first_row` of a block. `whole` is false for a part.

    `key` permanently identifies exactly these rows: a block id, or `{block id}:{first}-{last}` for a part.
    """

    block_id: str
    batch: pa.RecordBatch
    first_row: int = 0
    whole: bool = True

    @property
    def events(self) -> int:
        return int(self.batch.num_rows)

    @property
    def key(self) -> str:
        if self.whole:
            return self.block_id
        return f"{self.block_id}:{self.first_row}-{self.first_row + self.events - 1}"

    def get_event_ids(self) -> pa.Array:
        """Return the event ids: the producer's own, or `{block id}:{row}` with the row in the whole block."""
        own = self.batch.column("id")
        if own.null_count == 0:
            return own
        stop = self.first_row + self.events
        rows = _rows_as_text(stop.bit_length()).slice(self.first_row, self.events)
        return pc.coalesce(own, pc.binary_join_element_wise(self.block_id, rows, ":"))

    def fill_ids(self) -> pa.RecordBatch:
        return self.batch.set_column(self.batch.schema.get_field_index("id"), "id", self.get_event_ids())

    def extract_part(self, start: int, stop: int) -> "Delivery":
        """Return the rows start (included) to stop (excluded) of this delivery."""
        return Delivery(self.block_id, self.batch.slice(start, stop - start), self.first_row + start, whole=False)

    def collect_rows(self) -> Iterator[dict[str, Any]]:
        """Return the events as dictionaries: `time` an aware datetime, `attributes` the JSON text or None."""
        yield from self.fill_ids().to_pylist()


@dataclass(frozen=True, slots=True)
class Failure:
    """A block (by its index in the list given to the handler) that was not handled, and why.

    `poison`: the events themselves are at fault, so retries are useless. `transient`: a dependency of the handler is
    unavailable, so the events are not to blame and are not separated on the last try. `delay_seconds`: the minimum
    delay before a retry. `untried`: the handler was not called with it, so this counts as no try. `away`: the handler
    raised an error of a connection or a server, so the failure counts against the destination like a transient one.
    """

    block: int
    error: str
    poison: bool = False
    transient: bool = False
    delay_seconds: float = 0.0
    untried: bool = False
    away: bool = False

    @property
    def is_of_destination(self) -> bool:
        """Return whether the destination has failed, and not the events."""
        return (self.transient or self.away) and not self.poison


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


WHERE = "handler_options"


class Options:
    """`handler_options` of a queue, read one by one; `finish` rejects those that were not read."""

    def __init__(self, handler: str, document: Mapping[str, Any]) -> None:
        if not isinstance(document, Mapping):
            raise BadInput(WHERE, f"must be a JSON object, not {checks.shorten_for_message(document)}.")
        self._handler = handler
        self._document = dict(document)
        self._known: set[str] = set()

    def get_number(self, name: str, default: float, minimum: float, maximum: float) -> float:
        """Return a finite number in [minimum, maximum]."""
        return float(self._check_option(name, self._take(name, default), checks.accept_number(minimum, maximum)))

    def get_text(self, name: str, default: str | None = None) -> str:
        """Return a text that is not empty; it is required without a default."""
        value = self._take(name, default)
        if value is None:
            raise BadInput(f"{WHERE}.{name}", f"is required by the {self._handler} handler.")
        return str(self._check_option(name, value, checks.accept_text(blank=value == default)))

    def get_choice(self, name: str, default: str, allowed: Collection[str]) -> str:
        return str(self._check_option(name, self.get_text(name, default), checks.accept_choice(sorted(allowed))))

    def get_texts(self, name: str) -> dict[str, str]:
        """Return an object of texts, empty by default."""
        check = checks.accept_mapping(checks.accept_text(), "an object of strings")
        return dict(self._check_option(name, self._take(name, {}), check))

    def finish(self) -> None:
        """Reject options that were not read."""
        message = f"is not an option of the {self._handler} handler. The options are {{known}}."
        checks.refuse_unknown(self._document, sorted(self._known), WHERE, message=message)

    def _take(self, name: str, default: object) -> object:
        self._known.add(name)
        return self._document.get(name, default)

    def _check_option(self, name: str, value: object, check: checks.Check) -> Any:
        return check.validate(value, f"{WHERE}.{name}", end=".")


AWAY = frozenset({"08", "25", "28", "3D", "3F", "40", "42", "53", "55", "57", "58"})
ABOUT_EVENTS = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.ProgrammingError)


def is_away(error: Exception) -> bool:
    """Return whether an error is of a dependency and not of the input."""
    import psycopg  # The snapshot imports this module and needs no database driver.

    if isinstance(error, psycopg.Error):
        if error.sqlstate:
            return error.sqlstate[:2] in AWAY
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    if isinstance(error, sqlite3.DatabaseError):
        return not isinstance(error, ABOUT_EVENTS)
    return isinstance(error, OSError)


def fail_all_blocks(blocks: int, error: Exception) -> Outcome:
    """Return the outcome of a call in which each block failed. Raises the error where the events may be to blame."""
    if not is_away(error):
        raise error
    text = f"{type(error).__name__}: {error}"
    return Outcome(failures=tuple(Failure(place, text, transient=True) for place in range(blocks)))


NOWHERE = "nowhere"


def get_sink_name(handler: str, options: Mapping[str, Any]) -> str:
    """Return `archive`, a table, a host, a function; for an unknown handler its own name."""
    if handler.startswith("python:"):
        return handler.rsplit(".", 1)[-1]
    if handler == "webhook":
        # Only the host: an address may have names and passwords.
        return urlsplit(str(options.get("url", ""))).hostname or "webhook"
    if handler == "sql":
        return f"table {options.get('table') or 'handled'}"
    return {"parquet": "archive", "emulate": NOWHERE, "noop": NOWHERE}.get(handler, handler)


@dataclass(frozen=True, slots=True)
class Place:
    """The context of a handler: its queue and the data folder."""

    queue: str
    data: Path


class Handler(ABC):
    """A handler of the events of one queue.

    A worker calls `handle` with several blocks at once, and with parts of one block during the separation of poison. It
    either returns an Outcome (blocks in `failures` are tried again, all others are acknowledged), or raises: then
    nothing of the call counts as handled, and each block is tried alone. It may be called with the same blocks again,
    and must then have no second effect. works_block_by_block: whether a call may be divided at no cost.
    """

    works_block_by_block = False

    def __init__(self, place: Place, options: Options) -> None:
        """Read the options; a handler without its own constructor has none."""
        options.finish()

    @abstractmethod
    def handle(self, deliveries: Sequence[Delivery]) -> Outcome: ...
