"""Patterns and events for the matcher's tests, and what the contract's words find when read plainly."""

import itertools

import pyarrow as pa

from controllers.patterns.expression import iterate_symbol_names
from workers.pipeline.matching.matcher import Matcher
from workers.pipeline.matching.retained import KEYED, Matches, concatenate
from workers.pipeline.patterns.pattern import Pattern, parse_definitions, parse_expression

GROUPS = 4


def pattern_of(text: str, define: dict[str, str] | None = None, within_us: int = 10, **more) -> Pattern:
    expression = parse_expression(text, "pattern")
    return Pattern("p", expression, parse_definitions(expression, define or {}, "define"), "source", within_us, **more)


def rows_of(events: list[tuple]) -> pa.RecordBatch:
    """(time in µs, type, value, source), numbered e0000, e0001, … as given, in the order of their time."""
    rows = [
        {
            "id": f"e{place:04}",
            "time": time,
            "type": kind,
            "value": value,
            "source": source,
            "match_key": source,
            "group": ord(source) % GROUPS,
        }
        for place, (time, kind, value, source) in enumerate(events)
    ]
    return pa.RecordBatch.from_pylist(sorted(rows, key=lambda row: row["time"]), schema=KEYED)


def match_all(pattern: Pattern, rows: pa.RecordBatch) -> Matches:
    """All matches of a closed set of events, in the order of completion."""
    matcher = Matcher(pattern)
    return concatenate([matcher.take(rows), matcher.finish()])


def found_in(matches: Matches) -> list[list[str]]:
    return matches.get_event_ids()


def holds(pattern: Pattern, symbol: str, event: dict) -> bool:
    predicate = pattern.defines[symbol]
    columns = {name: pa.array([event[name]], KEYED.field(name).type) for name in predicate.columns}
    return predicate.mask(columns, 1)[0].as_py()


def _steps(pattern: Pattern) -> list[str]:
    return list(iterate_symbol_names(pattern.expression.root))


def once_plainly(pattern: Pattern, rows: pa.RecordBatch) -> list[list[str]]:
    """SEQ under `once`, word by word: look through all open machines for every event."""
    steps = _steps(pattern)
    open_machines: list[list[dict]] = []
    found = []
    for event in rows.to_pylist():
        open_machines = [m for m in open_machines if event["time"] - m[0]["time"] <= pattern.within_us]
        able = [
            machine
            for machine in open_machines
            if machine[0]["source"] == event["source"] and holds(pattern, steps[len(machine)], event)
        ]
        if able:
            machine = max(able, key=len)  # the first of the longest is the oldest of them
            machine.append(event)
        elif holds(pattern, steps[0], event):
            machine = [event]
            open_machines.append(machine)
        else:
            continue
        if len(machine) == len(steps):
            found.append([each["id"] for each in machine])
            open_machines.remove(machine)
    return found


def and_plainly(pattern: Pattern, rows: pa.RecordBatch) -> list[list[str]]:
    """AND of single events under `once`: of all unexpired events the oldest that have a place each."""
    waiting: dict[str, list[dict]] = {}
    found = []
    for event in rows.to_pylist():
        own = [each for each in waiting.get(event["source"], []) if event["time"] - each["time"] <= pattern.within_us]
        own.append(event)
        sets = itertools.combinations(own, len(pattern.needed))  # the oldest first
        chosen = next((chosen for chosen in sets if _fill(pattern, chosen)), ())
        if chosen:
            found.append([each["id"] for each in chosen])
        waiting[event["source"]] = [each for each in own if each not in chosen]
    return found


def _fill(pattern: Pattern, events: tuple[dict, ...]) -> bool:
    return any(
        all(holds(pattern, symbol, event) for symbol, event in zip(order, events, strict=True))
        for order in set(itertools.permutations(pattern.needed))
    )


def rows_plainly(pattern: Pattern, rows: pa.RecordBatch) -> list[list[str]]:
    """SEQ under `skip-past-last`: from each event on in turn, and behind each match."""
    events = rows.to_pylist()
    places = {event["id"]: place for place, event in enumerate(events)}
    found = []
    for source in sorted({event["source"] for event in events}):
        own = [event for event in events if event["source"] == source]
        at = 0
        while at < len(own):
            match = _from(pattern, own[at:])
            if match:
                found.append([event["id"] for event in match])
                at = own.index(match[-1])
            at += 1
    return sorted(found, key=lambda ids: places[ids[-1]])


def _from(pattern: Pattern, events: list[dict]) -> list[dict] | None:
    """The match that begins with the first of the events."""
    steps, taken = _steps(pattern), []
    for event in events:
        if event["time"] - events[0]["time"] > pattern.within_us:
            return None
        if holds(pattern, steps[len(taken)], event):
            taken.append(event)
        elif not pattern.is_relaxed or not taken:
            return None
        if len(taken) == len(steps):
            return taken
    return None
