"""`match` once more, by positions instead of derivatives: what the tool is compared with on random patterns.

A way through a pattern is at a position, and waits for what may come behind it: a list of `Wait`s, the preferred first,
written down by going through the tree with what follows as a continuation (Glushkov's positions). Conditions are Python
functions of the events. Nothing is shared with the matcher but the grammar.

Read from CONTRACT, and where it is silent from docs/understand/how/matching.md:

- relaxed: a way takes an event where it can, else lets it pass, unless a NOT forbids it; strict: it takes the
  next event or ends
- what one part of an AND takes the others let pass, unless a NOT of theirs forbids it
- the match is the preferred way that ends; relaxed, in an OR or AND what is complete first counts
- `once`: an event goes to the attempt that has taken most, the oldest among equals, else opens a new one;
  an AND of single events takes the oldest unexpired
- `skip-past-last`: leftmost begin, and on behind the last event of a match
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from controllers.patterns import expression as tree

AGAIN, ON = -1, -2


class Event(NamedTuple):
    """An event by its place and time (µs), with the symbols that it satisfies."""

    place: int
    time_us: int
    held: frozenset[str]


class Wait(NamedTuple):
    """symbol: what is waited for; None: the end. then: what is waited for behind it, by the symbols that its
    event satisfies. forbids: symbols that may not come before it. turns: the choices on the way there.
    passing: of a part of an AND, the same after an event that all its parts let pass (None: one does not).
    """

    symbol: str | None
    then: Callable[[frozenset[str]], "list[Wait]"]
    forbids: frozenset[str] = frozenset()
    turns: tuple[int, ...] = ()
    passing: Callable[[frozenset[str]], "Wait | None"] | None = None

    def after(self, held: frozenset[str]) -> "Wait | None":
        """It lets an event pass."""
        if self.forbids & held:
            return None
        if self.passing is None:
            return self
        left = self.passing(held)
        return None if left is None else self._replace(then=left.then, passing=left.passing)


def waits(item: tree.Item, behind: Callable[[], list[Wait]]) -> list[Wait]:
    """What is waited for at the begin of an item, and what follows it behind."""
    match item:
        case tree.Symbol(name):
            return [Wait(name, lambda held: behind())]
        case tree.Sequence(items):
            return _in_order(items, behind)
        case tree.Choice(items):
            return [
                wait._replace(turns=(number, *wait.turns))
                for number, part in enumerate(items, 1)
                for wait in waits(part, behind)
            ]
        case tree.Conjunction(items):
            return _in_any_order([waits(part, _end) for part in items], behind)
        case tree.Repeat(part, least, most, greedy):
            return _repeated(part, least, most, greedy, behind)
    raise AssertionError(item)


def _end() -> list[Wait]:
    return [Wait(None, lambda held: _end())]


def _in_order(items: Sequence[tree.Item], behind: Callable[[], list[Wait]]) -> list[Wait]:
    if not items:
        return behind()
    first, rest = items[0], items[1:]
    if isinstance(first, tree.AbsentSymbol):
        symbol = {first.symbol.name}
        return [wait._replace(forbids=wait.forbids | symbol) for wait in _in_order(rest, behind)]
    return waits(first, lambda: _in_order(rest, behind))


def _repeated(part, least, most, greedy, behind):
    if most == 0:
        return behind()
    left = None if most is None else most - 1
    again = [
        wait._replace(turns=(AGAIN, *wait.turns))
        for wait in waits(part, lambda: _repeated(part, max(least - 1, 0), left, greedy, behind))
    ]
    if least:
        return again
    on = [wait._replace(turns=(ON, *wait.turns)) for wait in behind()]
    return [*again, *on] if greedy else [*on, *again]


def _in_any_order(parts: list[list[Wait]], behind: Callable[[], list[Wait]]) -> list[Wait]:
    """Each part's waits up to its end; then, where all may end, what follows; then those behind an end."""
    before, after, may_end = list[Wait](), list[Wait](), 0
    for place, own in enumerate(parts):
        ended = False
        for wait in own:
            if wait.symbol is None:
                ended = True
                continue
            step = _of_part(place, wait, parts, behind)
            (after if ended else before).append(step._replace(turns=(place + 1, *wait.turns)))
        may_end += ended
    return [*before, *(behind() if may_end == len(parts) else []), *after]


def _of_part(place: int, wait: Wait, parts: list[list[Wait]], behind: Callable[[], list[Wait]]) -> Wait:
    def then(held: frozenset[str]) -> list[Wait]:
        left, own = _passed(parts, held), wait.then(held)
        left[place] = own
        return _in_any_order(left, behind) if all(left) else []

    def passing(held: frozenset[str]) -> Wait | None:
        left, own = _passed(parts, held), wait.after(held)
        return None if own is None or not all(left) else _of_part(place, own, left, behind)

    return wait._replace(then=then, passing=passing)


def _passed(parts: list[list[Wait]], held: frozenset[str]) -> list[list[Wait]]:
    return [[left for wait in part if (left := wait.after(held)) is not None] for part in parts]


@dataclass(frozen=True)
class Way:
    """What it waits for, the events it has taken, and through which event of its attempt it has come."""

    waits: tuple[Wait, ...]
    taken: tuple[int, ...] = ()
    through: int = 0
    turns: tuple[int, ...] = ()

    def takes(self, held: frozenset[str]) -> list[Wait]:
        return [wait for wait in self.waits if wait.symbol in held and wait.then(held)]

    @property
    def ends_late(self) -> bool:
        return any(wait.symbol is None for wait in self.waits)

    def after(self, held: frozenset[str]) -> "Way":
        """It lets an event pass."""
        left = (wait.after(held) for wait in self.waits)
        return replace(self, waits=tuple(wait for wait in left if wait is not None))


@dataclass
class Attempt:
    """One attempt from its first event on."""

    began_us: int
    ways: list[Way]
    relaxed: bool
    ended: Way | None = None
    seen: int = 0
    taken: int = 0

    def can_take(self, event: Event) -> bool:
        return any(way.takes(event.held) for way in self.ways)

    def take(self, event: Event) -> None:
        before, self.ways = self.ways, []
        self.seen += 1
        self.taken += 1
        for way in before:
            for wait in way.takes(event.held):
                left, ends = _up_to_the_end(wait.then(event.held))
                taken, turns = (*way.taken, event.place), (*way.turns, *wait.turns)
                following = Way(left, taken, self.seen, turns)
                if left:
                    self.ways.append(following)
                if ends:
                    self._end(following)
                    return
            if not way.takes(event.held):
                if self.relaxed and (left := way.after(event.held)).waits:
                    self.ways.append(left)
                elif not self.relaxed and way.after(event.held).ends_late:
                    self.ended = way
                    return

    def _end(self, way: Way) -> None:
        self.ended = way
        if self.relaxed:
            self.ways = [each for each in self.ways if not _parted_by_choice(each.turns, way.turns)]

    def pass_over(self, event: Event) -> None:
        """The event is for another attempt, or for none."""
        self.seen += 1
        if self.relaxed:
            self.ways = [left for way in self.ways if (left := way.after(event.held)).waits]
            return
        late = (way for way in self.ways if way.after(event.held).ends_late and not way.takes(event.held))
        self.ended, self.ways = next(late, self.ended), []

    def result(self) -> Way | None:
        """The way that counts when nothing more comes."""
        return next((way for way in self.ways if way.ends_late), self.ended)


def _up_to_the_end(found: list[Wait]) -> tuple[tuple[Wait, ...], bool]:
    """The waits that are preferred to ending, and whether there is an end: nothing is preferred less."""
    ends = (at for at, wait in enumerate(found) if wait.symbol is None and not wait.forbids)
    at = next(ends, None)
    return tuple(found[:at]), at is not None


def _parted_by_choice(turns: tuple[int, ...], others: tuple[int, ...]) -> bool:
    return next((turn > 0 for turn, other in zip(turns, others, strict=False) if turn != other), False)


@dataclass
class Reference:
    """Matches of one pattern, as places of events."""

    root: tree.Item
    relaxed: bool
    within_us: int
    found: list[list[int]] = field(default_factory=list)

    def begin(self, event: Event) -> Attempt | None:
        attempt = Attempt(event.time_us, [Way(_up_to_the_end(waits(self.root, _end))[0])], self.relaxed)
        if not attempt.can_take(event):
            return None
        # The first event is taken, not let pass.
        attempt.relaxed = False
        attempt.take(event)
        attempt.relaxed = self.relaxed
        return attempt

    def is_over(self, began_us: int, now_us: int) -> bool:
        return now_us - began_us > self.within_us

    def skipping_past_last(self, events: Sequence[Event]) -> list[list[int]]:
        """Of the events of one key."""
        at = 0
        while at < len(events):
            attempt, on = self.begin(events[at]), at + 1
            while attempt and attempt.ways and on < len(events):
                if self.is_over(attempt.began_us, events[on].time_us):
                    break
                attempt.take(events[on])
                on += 1
            way = attempt.result() if attempt else None
            if way and way.taken:
                self.found.append(list(way.taken))
            at += way.through if way else 1
        return self.found

    def once(self, events: Sequence[Event]) -> list[list[int]]:
        """Of the events of one key."""
        if self.relaxed and (needed := _needed(self.root)) is not None:
            return self._oldest_of_each(events, needed)
        attempts: list[Attempt] = []
        for event in events:
            for attempt in [each for each in attempts if self.is_over(each.began_us, event.time_us)]:
                self._close(attempt, attempts)
            able = [each for each in attempts if each.can_take(event)]
            chosen = max(able, key=lambda each: each.taken) if able else None
            for attempt in [each for each in attempts if each is not chosen]:
                attempt.pass_over(event)
                if not attempt.ways:
                    self._close(attempt, attempts)
            if chosen:
                chosen.take(event)
            elif chosen := self.begin(event):
                attempts.append(chosen)
            if chosen and not chosen.ways:
                self._close(chosen, attempts)
        for attempt in list(attempts):
            self._close(attempt, attempts)
        return self.found

    def _close(self, attempt: Attempt, attempts: list[Attempt]) -> None:
        attempts[:] = [each for each in attempts if each is not attempt]
        way = attempt.result()
        if way and way.taken:
            self.found.append(list(way.taken))

    def _oldest_of_each(self, events: Sequence[Event], needed: list[str]) -> list[list[int]]:
        """AND of single events: of all that have not expired the oldest that have a place each."""
        waiting: list[Event] = []
        for event in events:
            waiting = [each for each in waiting if not self.is_over(each.time_us, event.time_us)] + [event]
            sets = itertools.combinations(waiting, len(needed))
            chosen = next((chosen for chosen in sets if _have_places(chosen, needed)), ())
            if chosen:
                self.found.append([each.place for each in chosen])
            waiting = [each for each in waiting if each not in chosen]
        return self.found


def _needed(root: tree.Item) -> list[str] | None:
    """The symbols of an AND of single events, each as often as it is needed."""
    if not isinstance(root, tree.Conjunction):
        return None
    found: list[str] = []
    for item in root.items:
        match item:
            case tree.Symbol(name):
                found.append(name)
            case tree.Repeat(tree.Symbol(name), least, most, _) if least == most:
                found += [name] * least
            case _:
                return None
    return found


def _have_places(events: Sequence[Event], needed: list[str]) -> bool:
    return any(
        all(symbol in event.held for symbol, event in zip(order, events, strict=True))
        for order in set(itertools.permutations(needed))
    )
