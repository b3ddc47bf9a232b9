"""The events that a pattern sheds while its operator receives more than it can process.

The table gives, per pattern and label, the share that is dropped. The label of an event is its type, and also the
symbols that it satisfies if events of that type differ in them (`label_events`). The shed decision of an event follows
from its id or key alone (`rank_texts`), so it is the same in every replay. An event that one pattern drops is dropped
by every pattern that drops at least as much, so that events that no pattern needs are not sent.

Dropped *by event*, a pattern keeps the product of the kept shares of its matches: next to nothing if each key has few
events. *By key*, the pattern drops whole keys, as many as the smallest share of its row in the table says, and keeps
that share of its matches. Of the other keys it drops single events of the labels with a larger share: their surplus. A
label without a share loses nothing. The selected keys change every ROTATION_WINDOWS windows of the pattern, or of the
longest later pattern that continues with its keys (`traced_keys`), so that no key is left out for good.

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

from controllers.shedding.latency_bound import REDUCED_FACTOR
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

    shares: pattern → label → share dropped. control_share: share of the keys whose events are never dropped.
    by: the unit of the shed decision, one of UNITS. events_of: patterns whose unit is the event in any case.
    """

    shares: Shares = field(default_factory=dict)
    control_share: float = 0.0
    by: str = "event"
    events_of: Mapping[str, bool] = field(default_factory=dict)

    def find_key_share(self, pattern: str) -> float:
        """Return the share of the keys that a pattern drops as a whole."""
        is_by_key = self.by == "key" and not self.events_of.get(pattern, False)
        return min(self.shares.get(pattern, {}).values(), default=0.0) if is_by_key else 0.0

    def is_shedding(self, pattern: str) -> bool:
        return any(share > 0 for share in self.shares.get(pattern, {}).values())

    @cached_property
    def sheds(self) -> bool:
        return any(map(self.is_shedding, self.shares))


def interpolate_shares(shares: Shares, reduced: Shares, excess: float) -> Shares:
    """Return the shares for a batch with `excess` times the rows that `shares` is made for.

    reduced: the shares for `REDUCED_FACTOR` times the rows, and more. The admitted work of a row falls as 1 / excess.
    """
    weight = (1 - 1 / min(excess, REDUCED_FACTOR)) / (1 - 1 / REDUCED_FACTOR)
    table: dict[str, dict[str, float]] = {}
    for pattern in sorted({*shares, *reduced}):
        ends = shares.get(pattern, {}), reduced.get(pattern, {})
        table[pattern] = {
            label: round((1 - weight) * ends[0].get(label, 0.0) + weight * ends[1].get(label, 0.0), 6)
            for label in sorted({*ends[0], *ends[1]})
        }
    return table


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
        return self.select_sample(0.0)

    def select_sample(self, share: float) -> np.ndarray:
        """Return whether each key is one of this share of the keys, which includes the control keys (bool per key)."""
        sampled: np.ndarray = self._control_ranks < max(share, self._shedder.control_share)
        return sampled

    @cached_property
    def groups(self) -> np.ndarray:
        """Return the group in which each key is counted if it is a control key."""
        groups: np.ndarray = (self._rank_keys(_GROUP_SALT) * CONTROL_GROUPS).astype(np.int64)
        return groups

    @cached_property
    def _control_ranks(self) -> np.ndarray:
        return self._rank_keys(_SPARED_SALT)

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

    def select_dropped(self, pattern: Pattern, masks: np.ndarray, labels: pa.DictionaryArray) -> np.ndarray:
        """Return whether the pattern sheds each row (bool per row). masks: `compute_masks`. labels: `label_events`.

        Only events that add to a match are ever dropped. If a NOT waits for an event, or every event counts, dropping
        one would create false matches.
        """
        shares = self._shedder.shares.get(pattern.name, {})
        if not is_sheddable(pattern) or not self._shedder.is_shedding(pattern.name):
            return np.zeros(self._rows.num_rows, bool)
        of_labels = np.array([shares.get(name, 0.0) for name in labels.dictionary.to_pylist()])
        of_rows = of_labels[labels.indices.to_numpy(zero_copy_only=False)]
        concerned = (masks != 0) & (masks & pattern.absent_bits == 0) & (of_rows > 0) & ~self.control
        by_key = self._shedder.find_key_share(pattern.name)
        dropped: np.ndarray = np.zeros(self._rows.num_rows, bool)
        if by_key > 0:
            dropped = concerned & (self._compute_key_ranks(pattern, concerned) < by_key)
        if by_key < max(shares.values()):
            surplus = concerned & ~dropped & (of_rows > by_key)
            dropped |= surplus & (self._compute_event_ranks(surplus) < (of_rows - by_key) / (1 - by_key))
        return dropped

    def _compute_event_ranks(self, concerned: np.ndarray) -> np.ndarray:
        """Return the rank of each of these rows by its id."""
        new = np.flatnonzero(concerned & np.isnan(self._ranks))
        if len(new):
            self._ranks[new] = rank_texts(self._rows.column("id").take(pa.array(new)).fill_null(""))
        return self._ranks

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


def is_sheddable(pattern: Pattern) -> bool:
    """Return whether a pattern with fewer events only finds fewer matches, never other ones."""
    return not pattern.needs_every_event and not pattern.reads_sets


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


def label_events(
    pattern: Pattern, rows: pa.RecordBatch, masks: np.ndarray | None, whole_types: Collection[str] = ()
) -> pa.DictionaryArray:
    """Return the label of each row: its type, and its symbols if events of this type may satisfy different ones.

    masks: `compute_masks`; None: the labels are types. whole_types: types that are not split, since other patterns emit
    them.
    """
    types = rows.column("type").fill_null("").dictionary_encode()
    if masks is None or pattern.has_types_of_one_symbol:
        return types
    codes, (sets, places) = types.indices.to_numpy(), np.unique(masks, return_inverse=True)
    pairs, labels = np.unique(codes * len(sets) + places, return_inverse=True)
    names = types.dictionary.to_pylist()
    texts = [
        _label_event(pattern, names[pair // len(sets)], int(sets[pair % len(sets)]), whole_types)
        for pair in pairs.tolist()
    ]
    return pa.DictionaryArray.from_arrays(pa.array(labels, pa.int32()), pa.array(texts, pa.string()))


def _label_event(pattern: Pattern, event_type: str, mask: int, whole_types: Collection[str]) -> str:
    possible = len(list_label_symbols(pattern, event_type))
    label = f"{event_type}[{'+'.join(pattern.list_symbols(mask))}]"
    is_split = mask and possible > 1 and event_type not in whole_types and len(label) <= MAX_NAME
    return label if is_split else event_type


def list_label_symbols(pattern: Pattern, label: str) -> list[str]:
    """Return the symbols that an event of this label may satisfy."""
    symbols = label.rpartition("[")[2].removesuffix("]").split("+")
    if label.endswith("]") and set(symbols) <= set(pattern.symbols):
        return symbols
    requested = ((symbol, pattern.defines[symbol].types) for symbol in pattern.symbols)
    return [symbol for symbol, types in requested if not types or label in types]


def count_by_label(labels: pa.DictionaryArray, chosen: np.ndarray) -> dict[str, int]:
    counts = np.bincount(labels.indices.to_numpy(zero_copy_only=False)[chosen], minlength=len(labels.dictionary))
    sums: dict[str, int] = {}
    for name, count in zip(labels.dictionary.to_pylist(), counts.tolist(), strict=True):
        if count:  # two entries of a split dictionary may have the same text
            sums[name] = sums.get(name, 0) + count
    return sums


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
    """Return the types that the pattern may take: all that its operator receives if a condition names none."""
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
