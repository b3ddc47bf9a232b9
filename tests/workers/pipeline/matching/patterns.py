"""Patterns and events for the matcher's tests."""

import pyarrow as pa

from workers.pipeline.matching.matcher import Matcher
from workers.pipeline.matching.retained import KEYED, Matches, concatenate
from workers.pipeline.patterns.pattern import Pattern, parse_definitions, parse_expression, parse_measures

GROUPS = 4


def pattern_of(text: str, define: dict[str, str] | None = None, within_us: int = 10, **more) -> Pattern:
    expression = parse_expression(text, "pattern")
    more["measures"] = parse_measures(expression, more.pop("measures", {}), "measures")
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
