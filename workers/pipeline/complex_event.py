"""Complex events: matches as events under the blocks' schema."""

from collections.abc import Iterator

import orjson
import pyarrow as pa

from queues.block import SCHEMA
from workers.pipeline.matches import EVENT, Matches
from workers.pipeline.pattern import Pattern

_NAMES = ("time_us", *EVENT.names[1:])


def complex_events(pattern: Pattern, matches: Matches, ids: str) -> pa.RecordBatch:
    """Each match that is not quiet as an event: time and value of its last event, source the key, key the
    pattern, its contributing events in the attributes. ids: what the event ids begin with.
    """
    told = list(matches.told())
    last = [events[-1] for _, events in told]
    columns = {
        "id": [f"{ids}:{number}" for number in range(len(told))],
        "time": pa.array([event[0] for event in last], pa.int64()).cast(SCHEMA.field("time").type),
        "type": [pattern.emits] * len(told),
        "source": [key for key, _ in told],
        "key": [pattern.name] * len(told),
        "value": [event[3] for event in last],
        "attributes": list(_attributes(pattern, told)),
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA
    )


def _attributes(pattern: Pattern, told: list[tuple]) -> Iterator[str]:
    for _, events in told:
        yield orjson.dumps(
            {
                "pattern": pattern.name,
                "severity": pattern.severity,
                "first_time": events[0][0] / 1_000_000,
                "events": [dict(zip(_NAMES, event, strict=True)) for event in events],
            }
        ).decode()
