"""The events that a pattern sheds while its operator receives more than it can process.

The table gives, per pattern and type, the share that is dropped. The shed decision of an event follows from its id
alone (`rank_texts`), so it is the same in every replay. An event that one pattern drops is dropped by every pattern
that drops at least as much, so that events that no pattern needs are not sent.

Dropped *by event*, a pattern keeps the product of the kept shares of its matches: next to nothing if each key has few
events. *By key*, the events of a key share their shed decision, and a pattern whose types have the same share keeps
that share of its matches. The selected keys change every ROTATION_WINDOWS windows of the pattern, or of the longest
later pattern that continues with its keys (`traced_keys`), so that no key is left out for good.

A small share of the keys are *control keys*: all their events go to all patterns, which shows what the other keys lose
(`recall`).
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from zlib import crc32

import numpy as np
import pyarrow as pa

from workers.pipeline.patterns.graph import Graph, Operator, list_named_types
from workers.pipeline.patterns.pattern import Pattern

UNITS = ("event", "key")
ROTATION_WINDOWS = 20
Shares = Mapping[str, Mapping[str, float]]
# The control keys are counted in groups, from which the interval of the recall takes how much keys differ.
CONTROL_GROUPS = 10
_SPARED_SALT, _GROUP_SALT, _WHOLE = crc32(b"spared"), crc32(b"group"), float(1 << 32)


@dataclass(frozen=True)
class Shedder:
    """A shedding table.

    shares: pattern → type → share dropped. control_share: share of the keys whose events are never dropped.
    by: the unit of the shed decision, one of UNITS.
    """

    shares: Shares = field(default_factory=dict)
    control_share: float = 0.0
    by: str = "event"

    @cached_property
    def sheds(self) -> bool:
        return any(share > 0 for types in self.shares.values() for share in types.values())


@dataclass(frozen=True)
class DecisionPeriod:
    """For how long of event time a key keeps its shed decision.

    level: of its operator. What operators of two levels drop of the same keys is independent.
    """

    lasts_us: int
    level: int = 0

    def salt(self, number: int) -> int:
        """Return the salt of the ranks of keys in one period."""
        return crc32(f"{number}/{self.level}".encode() if self.level else str(number).encode())


class KeyRanks:
    """The properties of keys: text, one per row or match; null if a row is of no use."""

    def __init__(self, shedder: Shedder, keys: pa.Array) -> None:
        self._shedder, self._keys = shedder, keys.fill_null("").dictionary_encode()

    @cached_property
    def control(self) -> np.ndarray:
        """Return whether each key is a control key (bool per key)."""
        return self._rank_keys(_SPARED_SALT) < self._shedder.control_share

    @cached_property
    def groups(self) -> np.ndarray:
        """Return the group in which each key is counted if it is a control key."""
        groups: np.ndarray = (self._rank_keys(_GROUP_SALT) * CONTROL_GROUPS).astype(np.int64)
        return groups

    def _rank_keys(self, salt: int) -> np.ndarray:
        ranks = rank_texts(self._keys.dictionary, salt)
        return ranks[self._keys.indices.to_numpy(zero_copy_only=False)] if len(ranks) else ranks


class ShedDecisions(KeyRanks):
    """The shed decisions for the rows of one batch.

    periods: pattern → how long its keys keep their decision; for others it follows from their window.
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
        """Return whether the pattern sheds each row (bool per row). masks: see `masks_of`.

        Only events that add to a match are ever dropped. If a NOT waits for an event, or every event counts, dropping
        one would create false matches.
        """
        shares = self._shedder.shares.get(pattern.name, {})
        if not is_sheddable(pattern) or not any(share > 0 for share in shares.values()):
            return np.zeros(self._rows.num_rows, bool)
        of_types = np.array([shares.get(name, 0.0) for name in self._types.dictionary.to_pylist()])
        of_rows = of_types[self._types.indices.to_numpy(zero_copy_only=False)]
        concerned = (masks != 0) & (masks & pattern.absent_bits == 0) & (of_rows > 0) & ~self.control
        if self._shedder.by == "key":
            ranks = self._compute_key_ranks(pattern, concerned)
        else:
            new = np.flatnonzero(concerned & np.isnan(self._ranks))
            if len(new):
                self._ranks[new] = rank_texts(self._rows.column("id").take(pa.array(new)).fill_null(""))
            ranks = self._ranks
        dropped: np.ndarray = concerned & (ranks < of_rows)
        return dropped

    def _compute_key_ranks(self, pattern: Pattern, concerned: np.ndarray) -> np.ndarray:
        """Return, per row, the rank of its key in the period of its time."""
        period = self._periods.get(pattern.name) or DecisionPeriod(ROTATION_WINDOWS * max(1, pattern.within_us))
        # A rule may leave a row without its time: no pattern gets such a row, but it comes here first.
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


def is_sheddable(pattern: Pattern) -> bool:
    """Return whether a pattern with fewer events only finds fewer matches, never other ones."""
    return not pattern.needs_every_event


def rank_texts(texts: pa.Array, salt: int = 0) -> np.ndarray:
    """Return, per text, a number in [0, 1), the same everywhere and always.

    The numbers are spread evenly, even for texts with consecutive numbers.
    """
    checks = np.array([crc32(text.encode(), salt) for text in texts.to_pylist()], np.uint32)
    # A checksum is linear: consecutive texts would be spread, but in step. The multiplications break that.
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        checks ^= checks >> np.uint32(shift)
        checks *= np.uint32(factor)
    checks ^= checks >> np.uint32(16)
    return checks / _WHOLE


def count_by_type(rows: pa.RecordBatch, chosen: np.ndarray) -> dict[str, int]:
    if not chosen.any():
        return {}
    counts = rows.column("type").filter(pa.array(chosen)).value_counts()
    return {count["values"].as_py(): count["counts"].as_py() for count in counts}


BY_KEY_BEFORE = "source"  # the column of a complex event that holds the key it was found by


def find_chain_starts(graph: Graph) -> Mapping[str, frozenset[str]]:
    """Return, per pattern, the patterns at the start of its chains, or itself if it reads no complex events.

    Empty if keys are lost on the way.
    """
    emitters, starts = _list_emitters(graph), dict[str, frozenset[str]]()
    for operator in (level_operator for level in graph.levels for level_operator in level):
        for pattern in operator.patterns:
            before = [starts[name] for kind in _read(pattern, operator) for name in emitters.get(kind, ())]
            if not before:
                starts[pattern.name] = frozenset({pattern.name})
            elif operator.key == BY_KEY_BEFORE and all(before):
                starts[pattern.name] = frozenset().union(*before)
            else:
                starts[pattern.name] = frozenset()
    return starts


def compute_periods(graph: Graph) -> Mapping[str, DecisionPeriod]:
    """Return, per pattern, how long a key of it keeps its shed decision.

    That is ROTATION_WINDOWS of the longest window: its own, or one of those that continue with what it emits by the
    same keys.
    """
    emitters, longest_us = (
        _list_emitters(graph),
        {graph_pattern.name: max(1, graph_pattern.within_us) for graph_pattern in graph.patterns},
    )
    periods_by_pattern: dict[str, DecisionPeriod] = {}
    for number, level in reversed(list(enumerate(graph.levels))):
        for operator in level:
            for pattern in operator.patterns:
                own_us = longest_us[pattern.name]
                periods_by_pattern[pattern.name] = DecisionPeriod(ROTATION_WINDOWS * own_us, number)
                for name in (emitter for kind in _read(pattern, operator) for emitter in emitters.get(kind, ())):
                    if operator.key == BY_KEY_BEFORE:
                        longest_us[name] = max(longest_us[name], own_us)
    return periods_by_pattern


def _read(pattern: Pattern, operator: Operator) -> frozenset[str]:
    """Return the types that the pattern may take.

    A condition that names none takes everything that its operator receives.
    """
    names_all = all(pattern.defines[symbol].types for symbol in pattern.symbols)
    return list_named_types(pattern) if names_all else operator.types


def _list_emitters(graph: Graph) -> dict[str, list[str]]:
    """Return the patterns that emit each type."""
    emitters: dict[str, list[str]] = {}
    for pattern in graph.patterns:
        emitters.setdefault(pattern.emits, []).append(pattern.name)
    return emitters


MAX_TYPES = 32  # types counted by name for one pattern, besides those that it names itself
MAX_NAME = 80  # characters of a type that the pattern does not name: the snapshot of every page contains it
OTHERS = "(other types)"
ShedCounts = dict[str, dict[str, int]]


def limit_types(types: dict[str, int], named: Collection[str] = ()) -> dict[str, int]:
    """Return the named types and the most frequent others, with all the rest as one.

    Producers may invent any number of types, each as long as an event.
    """
    types = _shorten_names(types, named)
    others = {
        event_type: number for event_type, number in types.items() if event_type not in named and event_type != OTHERS
    }
    if len(others) <= MAX_TYPES:
        return types
    frequent = sorted(others, key=lambda event_type: -others[event_type])[:MAX_TYPES]
    limited = {event_type: number for event_type, number in types.items() if event_type in named} | {
        event_type: others[event_type] for event_type in frequent
    }
    limited[OTHERS] = sum(types.values()) - sum(limited.values())
    return limited


def _shorten_names(types: dict[str, int], named: Collection[str]) -> dict[str, int]:
    """Return the types with the names of those that are not `named` cut to MAX_NAME characters."""
    shortened: dict[str, int] = {}
    for event_type, number in types.items():
        name = event_type if event_type in named or len(event_type) <= MAX_NAME else f"{event_type[: MAX_NAME - 1]}…"
        shortened[name] = shortened.get(name, 0) + number
    return shortened


def add_count(counts: ShedCounts, pattern: str, types: dict[str, int]) -> None:
    if not types:
        return
    of_pattern = counts.setdefault(pattern, {})
    for event_type, events in types.items():
        of_pattern[event_type] = of_pattern.get(event_type, 0) + events


def sum_task_counts(texts: list[str]) -> ShedCounts:
    sums: ShedCounts = {}
    for text in texts:
        for pattern, types in json.loads(text or "{}").items():
            add_count(sums, pattern, types)
    return sums


def to_text(counts: ShedCounts) -> str:
    return json.dumps(counts) if counts else ""
