"""The possible continuations of a pattern: its expression taken apart event by event.

A state is the expression of what is still to come (Brzozowski's derivative, with Antimirov's choices in order of
preference). States are made on first use and kept, since a pattern has few of them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, reduce
from math import prod
from operator import or_
from typing import NamedTuple

from controllers.patterns.expression import (
    AbsentSymbol,
    Choice,
    Conjunction,
    HiddenItem,
    Item,
    Repeat,
    Sequence,
    Symbol,
    iterate_forbidden_symbols,
)

EMPTY = Sequence(())


class Ending(Enum):
    """The pattern may end here: NOW, or once the window is over, while a NOT is still watched: LATE."""

    NOW = "now"
    LATE = "late"


class Transition(NamedTuple):
    """Taking an event that satisfies `symbol` leaves `rest` to come. hidden: it is not part of the match."""

    symbol: str
    hidden: bool
    rest: Item


class Option(NamedTuple):
    """A transition or an ending, and the choices that led to it.

    choices: n > 0 is the n-th part of an OR or AND; AGAIN or ON says that a repetition continued or ended.
    """

    what: Transition | Ending
    choices: tuple[int, ...] = ()


AGAIN, ON = -1, -2
MAX_STATES = 20_000


def list_options(item: Item, held: frozenset[str] | None = None) -> tuple[Option, ...]:
    """Return what may be done next, the most preferred first, without duplicates.

    held: with an event that satisfies these symbols; None: with any event.
    """
    options_by_next: dict[Transition | Ending, Option] = {}
    for option in _iterate_options(item, held):
        options_by_next.setdefault(option.what, option)
    return tuple(options_by_next.values())


def _iterate_options(item: Item, held: frozenset[str] | None = None) -> Iterator[Option]:
    match item:
        case Symbol(name):
            yield Option(Transition(name, False, EMPTY))
        case Sequence(items):
            yield from _expand_sequence(items, held)
        case Choice(items):
            for number, part in enumerate(items, 1):
                yield from (Option(what, (number, *choices)) for what, choices in _iterate_options(part, held))
        case Conjunction(items):
            yield from _expand_conjunction(items, held)
        case Repeat():
            yield from _expand_repetition(item, held)
        case HiddenItem(part):
            for what, choices in _iterate_options(part, held):
                yield Option(
                    Transition(what.symbol, True, hide(what.rest)) if isinstance(what, Transition) else what, choices
                )
        case AbsentSymbol():
            yield Option(Ending.LATE)


def _expand_sequence(items: tuple[Item, ...], held: frozenset[str] | None) -> Iterator[Option]:
    """Expand a sequence from its end, and no further back than the first item that can't end.

    However many items are optional, none is expanded twice or within another.
    """
    items = (*items[:1], *_flatten_items(items[1:]))
    ways: list[list[Option]] = []
    for item in items:
        ways.append(list(_iterate_options(item, held)))
        if not any(isinstance(what, Ending) for what, _ in ways[-1]):
            break
    following = [Option(Ending.NOW)]
    for place in reversed(range(len(ways))):
        following = list(_append_rest(ways[place], items[place + 1 :], following))
    yield from following


def _append_rest(own: list[Option], rest: tuple[Item, ...], following: list[Option]) -> Iterator[Option]:
    """Return what an item's own options become before the rest.

    What follows the item follows each of its endings in the same way. Only an ending differs: after an item that ends
    late, because of a NOT at its end, the whole ends late too.
    """
    ended: set[Ending] = set()
    for what, choices in own:
        if isinstance(what, Transition):
            yield Option(Transition(what.symbol, what.hidden, sequence((what.rest, *rest))), choices)
        elif what not in ended:
            for after, more in _continue_after(what, following):
                if isinstance(after, Ending) or not ended:
                    yield Option(after, (*choices, *more))
            ended.add(what)


def _continue_after(ending: Ending, following: Iterable[Option]) -> Iterator[Option]:
    """Return what follows an item with this ending."""
    for what, choices in following:
        yield Option(Ending.LATE if ending is Ending.LATE and isinstance(what, Ending) else what, choices)


def _expand_conjunction(items: tuple[Item, ...], held: frozenset[str] | None) -> Iterator[Option]:
    """Expand a conjunction: the parts in their order, each with the options that it prefers to its own end.

    Then comes the end, if all parts may end, and then what each part would take after it might have ended, since
    another part may keep the whole from ending. An event taken by one part passes the others, whose NOTs may forbid it.
    """
    endings: dict[int, Ending] = {}
    behind: list[Option] = []
    passed: tuple[Item | None, ...] = items
    if held is not None:
        passed = tuple(skip_event(part, held) for part in items)
    for place, part in enumerate(items):
        for what, choices in _iterate_options(part, held):
            if isinstance(what, Ending):
                endings.setdefault(place, what)
                continue
            others = _expand_all((*passed[:place], what.rest, *passed[place + 1 :]))
            if others is None:
                continue
            move = Option(Transition(what.symbol, what.hidden, build_conjunction(others)), (place + 1, *choices))
            if place in endings:
                behind.append(move)
            else:
                yield move
    if len(endings) == len(items):
        yield Option(Ending.LATE if Ending.LATE in endings.values() else Ending.NOW)
    yield from behind


def _expand_all(items: tuple[Item | None, ...]) -> tuple[Item, ...] | None:
    left = tuple(item for item in items if item is not None)
    return left if len(left) == len(items) else None


def _expand_repetition(item: Repeat, held: frozenset[str] | None) -> Iterator[Option]:
    most = None if item.most is None else item.most - 1
    again = Repeat(item.item, max(item.least - 1, 0), most, item.greedy)
    body = list(_iterate_options(item.item, held))
    moves = [
        Option(Transition(what.symbol, what.hidden, sequence((what.rest, again))), (AGAIN, *choices))
        for what, choices in body
        if isinstance(what, Transition)
    ]
    may_end = item.least == 0 or len(moves) < len(body)
    if may_end and not item.greedy:
        yield Option(Ending.NOW, (ON,))
    yield from moves
    if may_end and item.greedy:
        yield Option(Ending.NOW, (ON,))


def compute_max_states(item: Item) -> int:
    """Return the maximum number of states of a pattern: the sum of ordered parts, the product of unordered ones."""
    match item:
        case Sequence(items) | Choice(items):
            return 1 + sum(compute_max_states(part) - 1 for part in items)
        case Conjunction(items):
            return prod(compute_max_states(part) for part in items)
        case Repeat(part, least, most, _):
            return 1 + max(least + 1, most or 0) * (compute_max_states(part) - 1)
        case HiddenItem(part):
            return compute_max_states(part)
    return 2


def is_parted_by_choice(choices: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether two branches first parted at an OR or AND rather than at a repetition."""
    for turn, another in zip(choices, other, strict=False):
        if turn != another:
            return turn > 0
    return False


def sequence(items: Iterable[Item]) -> Item:
    """Return the items as a flat sequence. A NOT at the end of an inner sequence then lies between two steps."""
    flat: list[Item] = []
    for item in items:
        if isinstance(item, Repeat) and item.most == 0:
            continue
        flat.extend(item.items if isinstance(item, Sequence) else (item,))
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def _flatten_items(items: Iterable[Item]) -> tuple[Item, ...]:
    left = sequence(items)
    return left.items if isinstance(left, Sequence) else (left,)


def build_conjunction(items: Iterable[Item]) -> Item:
    left = tuple(item for item in items if item != EMPTY)
    return left[0] if len(left) == 1 else Conjunction(left) if left else EMPTY


def hide(item: Item) -> Item:
    return item if item == EMPTY else HiddenItem(item)


def skip_event(item: Item, satisfied: frozenset[str]) -> Item | None:
    """Return what is still to come after an event that is not taken, or None if a NOT forbids it.

    satisfied: the symbols that the event satisfies.
    """
    match item:
        case AbsentSymbol(symbol):
            return None if symbol.name in satisfied else item
        case Sequence(items) if items:
            return _sequence_passed_over(items, satisfied)
        case Conjunction(items):
            left = _expand_all(tuple(skip_event(part, satisfied) for part in items))
            return None if left is None else build_conjunction(left)
        case Choice(items):
            return _build_choice(skip_event(part, satisfied) for part in items)
        case HiddenItem(part):
            inner = skip_event(part, satisfied)
            return None if inner is None else hide(inner)
    return item


def _sequence_passed_over(items: tuple[Item, ...], satisfied: frozenset[str]) -> Item | None:
    """Skip an event, no further back than the first item that can't end. A NOT after this item does not count yet."""
    items = (items[0], *_flatten_items(items[1:]))
    reach = next(
        (
            place
            for place, item in enumerate(items)
            if not any(isinstance(what, Ending) for what, _ in _iterate_options(item))
        ),
        len(items) - 1,
    )
    head = skip_event(items[reach], satisfied)
    left = None if head is None else sequence((head, *items[reach + 1 :]))
    for place in reversed(range(reach)):
        left = _skip_before(items[place], sequence(items[place + 1 :]), left, satisfied)
    return left


def _skip_before(first: Item, rest: Item, tail: Item | None, satisfied: frozenset[str]) -> Item | None:
    """Skip an event before an item that may end, and the rest, which the event leaves as `tail`."""
    head = skip_event(first, satisfied)
    if isinstance(first, AbsentSymbol):
        return None if head is None or tail is None else sequence((head, tail))
    if tail == rest and head is not None:
        return sequence((head, rest))
    # The event came where a NOT forbids it, but only if `first` had ended. So it has not ended.
    begun = None if head is None else _build_choice(_require_event(head))
    return _build_choice([None if begun is None else sequence((begun, rest)), tail])


def _require_event(item: Item) -> Iterator[Item]:
    """Yield the variants of `item` that take at least one event."""
    match item:
        case Symbol():
            yield item
        case Repeat(part, least, most, greedy):
            yield Repeat(part, max(least, 1), most, greedy)
        case Choice(items):
            for part in items:
                yield from _require_event(part)
        case Sequence(items) | Conjunction(items):
            join = sequence if isinstance(item, Sequence) else build_conjunction
            for place, part in enumerate(items):
                for begun in _require_event(part):
                    yield join((*items[:place], begun, *items[place + 1 :]))
        case HiddenItem(part):
            yield from (hide(begun) for begun in _require_event(part))


def _has_absence_in_conjunction(item: Item) -> bool:
    match item:
        case Conjunction():
            return any(True for _ in iterate_forbidden_symbols(item))
        case Sequence(items) | Choice(items):
            return any(map(_has_absence_in_conjunction, items))
        case Repeat(part, _, _, _) | HiddenItem(part):
            return _has_absence_in_conjunction(part)
    return False


def _build_choice(items: Iterable[Item | None]) -> Item | None:
    left = tuple(dict.fromkeys(item for item in items if item is not None))
    return None if not left else left[0] if len(left) == 1 else Choice(left)


class Take(NamedTuple):
    """Takes an event with the symbol's bit in its mask. choices: as in `Option`."""

    bit: int
    hidden: bool
    state: int
    choices: tuple[int, ...]


@dataclass(frozen=True)
class State:
    """A state of an automaton.

    takes: the preferred first, up to where the pattern may end. ends: it may end now. ends_late: it may end when the
    window is over.
    """

    takes: tuple[Take, ...]
    ends: bool
    ends_late: bool

    @cached_property
    def wanted(self) -> int:
        """Return the bits of the symbols that it can take."""
        return reduce(or_, (take.bit for take in self.takes), 0)


class Automaton:
    """The states of one pattern, by number; `bits` gives each symbol its bit in an event's mask.

    to_the_last: an ending counts only with the last event, so that what follows an ending matters too.
    """

    def __init__(self, root: Item, bits: dict[str, int], to_the_last: bool = False) -> None:
        self._bits, self._to_the_last = bits, to_the_last
        self._numbers: dict[Item, int] = {}
        self._items: list[Item] = []
        self._states: list[State | None] = []
        self._passed: dict[tuple[int, int], int | None] = {}
        self._taking: dict[tuple[int, int], tuple[Take, ...]] = {}
        self._forbids_within_any_order = _has_absence_in_conjunction(root)
        self.start = self.get_number(root)

    def get_number(self, item: Item) -> int:
        """Return the number of the state with `item` still to come."""
        known_number = self._numbers.get(item)
        if known_number is None:
            known_number = self._numbers[item] = len(self._items)
            self._items.append(item)
            self._states.append(None)
        return known_number

    def get_item(self, number: int) -> Item:
        return self._items[number]

    def get_state(self, number: int) -> State:
        known_state = self._states[number]
        if known_state is None:
            known_state = self._states[number] = self._build_state(self._items[number])
        return known_state

    def _build_state(self, item: Item) -> State:
        made = list_options(item)
        endings = [option.what for option in made if isinstance(option.what, Ending)]
        return State(tuple(self._takes(made)), Ending.NOW in endings, Ending.LATE in endings)

    def _takes(self, found: Iterable[Option], mask: int = -1) -> Iterator[Take]:
        for what, choices in found:
            if isinstance(what, Transition):
                if (bit := self._bits[what.symbol]) & mask:
                    yield Take(bit, what.hidden, self.get_number(what.rest), choices)
            elif what is Ending.NOW and not self._to_the_last:
                return  # what follows is never preferred to ending

    def list_branches(self, number: int, mask: int) -> tuple[Take, ...]:
        """Return the branches by which it can take an event, the preferred first."""
        branches = self._taking.get((number, mask))
        if branches is None:
            if self._forbids_within_any_order:
                branches = tuple(self._takes(list_options(self._items[number], self._list_satisfied(mask)), mask))
            else:
                branches = tuple(take for take in self.get_state(number).takes if take.bit & mask)
            self._taking[number, mask] = branches
        return branches

    def _list_satisfied(self, mask: int) -> frozenset[str]:
        return frozenset(symbol for symbol, bit in self._bits.items() if mask & bit)

    def pass_over(self, number: int, mask: int) -> int | None:
        """Return the state after an event that is not taken, or None if the event is forbidden."""
        key = (number, mask)
        if key not in self._passed:
            item = skip_event(self._items[number], self._list_satisfied(mask))
            self._passed[key] = None if item is None else self.get_number(item)
        return self._passed[key]
