"""Which events a pattern does without while its operator is given more than it can do.

The table says, per pattern and type, the share that is dropped. An event's shed decision follows from its id
alone (`ranked`), so it is the same in every replay, and an event that one pattern drops is dropped by every
pattern that drops as much: what nobody wants any more need not travel.

Dropped *by event*, of a pattern's matches the product of the shares that are kept is left: nothing much where
each key has few events. *By key* the events of a key share their shed decision, and of a pattern whose types
are kept alike so many matches are left; which keys these are changes every ROTATION_WINDOWS windows of the
pattern, or of the longest behind it that goes on with its keys (`traced_keys`), so that none is left out for
good.

A small share of the keys are *control keys*: all their events go to all patterns, which shows what the others
lose (`recall`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from zlib import crc32

import numpy as np
import pyarrow as pa

from workers.pipeline.patterns.pattern import Pattern

UNITS = ("event", "key")
ROTATION_WINDOWS = 20
Shares = Mapping[str, Mapping[str, float]]
# The control keys are counted in groups, by which the recall's interval knows how far keys differ.
CONTROL_GROUPS = 10
_SPARED_SALT, _GROUP_SALT, _WHOLE = crc32(b"spared"), crc32(b"group"), float(1 << 32)


@dataclass(frozen=True)
class Shedder:
    """shares: pattern → type → share dropped. control_share: of the keys; nothing of theirs is dropped. by:
    what gets its shed decision as one, of UNITS.
    """

    shares: Shares = field(default_factory=dict)
    control_share: float = 0.0
    by: str = "event"

    @cached_property
    def sheds(self) -> bool:
        """Whether anything is dropped at all."""
        return any(share > 0 for types in self.shares.values() for share in types.values())


@dataclass(frozen=True)
class DecisionPeriod:
    """For how long of event time a key keeps its shed decision. level: of its operator; what operators of two
    levels drop of the same keys has nothing to do with one another.
    """

    lasts_us: int
    level: int = 0

    def salt(self, number: int) -> int:
        """Of the ranks of keys in one period."""
        return crc32(f"{number}/{self.level}".encode() if self.level else str(number).encode())


class KeyRanks:
    """What follows from keys: text, one per row or match; null where a row is of no use anyway."""

    def __init__(self, shedder: Shedder, keys: pa.Array) -> None:
        self._shedder, self._keys = shedder, keys.fill_null("").dictionary_encode()

    @cached_property
    def control(self) -> np.ndarray:
        """bool per key: whether it is a control key."""
        return self._rank_keys(_SPARED_SALT) < self._shedder.control_share

    @cached_property
    def groups(self) -> np.ndarray:
        """Per key the group it is counted in, should it be a control key."""
        groups: np.ndarray = (self._rank_keys(_GROUP_SALT) * CONTROL_GROUPS).astype(np.int64)
        return groups

    def _rank_keys(self, salt: int) -> np.ndarray:
        ranks = rank_texts(self._keys.dictionary, salt)
        return ranks[self._keys.indices.to_numpy(zero_copy_only=False)] if len(ranks) else ranks


class ShedDecisions(KeyRanks):
    """Of the rows of one batch. periods: pattern → how long its keys keep their decision; of others it
    follows from their window.
    """

    def __init__(
        self,
        shedder: Shedder,
        rows: pa.RecordBatch,
        keys: pa.Array,
        periods: Mapping[str, DecisionPeriod] | None = None,
    ) -> None:
        super().__init__(shedder, keys)
        self._rows, self._periods = rows, periods or {}
        self._ranks = np.full(rows.num_rows, np.nan)
        self._in_periods: dict[tuple[DecisionPeriod, int], np.ndarray] = {}

    def select_dropped(self, pattern: Pattern, masks: np.ndarray) -> np.ndarray:
        """bool per row: whether the pattern does without it. masks: see `masks_of`.

        Only what adds to a match is ever dropped: where a NOT waits for an event, or every event counts,
        dropping one would make up matches that were not there.
        """
        shares = self._shedder.shares.get(pattern.name, {})
        if not is_sheddable(pattern) or not any(share > 0 for share in shares.values()):
            return np.zeros(self._rows.num_rows, bool)
        of_types = np.array([shares.get(name, 0.0) for name in self._types.dictionary.to_pylist()])
        of_rows = of_types[self._types.indices.to_numpy(zero_copy_only=False)]
        concerned = (masks != 0) & (masks & pattern.absent_bits == 0) & (of_rows > 0) & ~self.control
        if self._shedder.by == "key":
            ranks = self._key_ranks(pattern, concerned)
        else:
            ranks = self._rank_rows(concerned)
        dropped: np.ndarray = concerned & (ranks < of_rows)
        return dropped

    def _key_ranks(self, pattern: Pattern, concerned: np.ndarray) -> np.ndarray:
        """Per row the rank of its key in the period that its time falls into."""
        period = self._periods.get(pattern.name) or DecisionPeriod(
            ROTATION_WINDOWS * max(1, pattern.within_us)
        )
        # A rule may leave a row without its time: nobody gets such a row, but it comes here first.
        numbers = self._rows.column("time").fill_null(0).to_numpy() // period.lasts_us
        ranks = np.ones(self._rows.num_rows)
        for number in np.unique(numbers[concerned]).tolist():
            if (period, number) not in self._in_periods:
                self._in_periods[period, number] = self._rank_keys(period.salt(number))
            ranks = np.where(numbers == number, self._in_periods[period, number], ranks)
        return ranks

    @cached_property
    def _types(self) -> pa.DictionaryArray:
        return self._rows.column("type").fill_null("").dictionary_encode()

    def _rank_rows(self, concerned: np.ndarray) -> np.ndarray:
        """The ranks, with those of these rows known: each is computed once, whoever asks."""
        new = np.flatnonzero(concerned & np.isnan(self._ranks))
        if len(new):
            self._ranks[new] = rank_texts(self._rows.column("id").take(pa.array(new)).fill_null(""))
        return self._ranks


def is_sheddable(pattern: Pattern) -> bool:
    """Whether a pattern finds only less, and nothing else, where it is given fewer events."""
    return not pattern.needs_every_event


def rank_texts(texts: pa.Array, salt: int = 0) -> np.ndarray:
    """Per text a number from 0 to below 1, alike everywhere and always; evenly spread, also over texts that
    count on.
    """
    checks = np.array([crc32(text.encode(), salt) for text in texts.to_pylist()], np.uint32)
    # A checksum is linear: what counts on would be spread, but in step. The multiplications break that.
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        checks ^= checks >> np.uint32(shift)
        checks *= np.uint32(factor)
    checks ^= checks >> np.uint32(16)
    return checks / _WHOLE


def count_by_type(rows: pa.RecordBatch, chosen: np.ndarray) -> dict[str, int]:
    """Type → how many of the chosen rows are of it."""
    if not chosen.any():
        return {}
    counts = rows.column("type").filter(pa.array(chosen)).value_counts()
    return {count["values"].as_py(): count["counts"].as_py() for count in counts}
