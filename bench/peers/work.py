"""The two works that every peer does, as files, and their right answers.

    rules     of telemetry: drop a subnet, join host name and type by the longest prefix of the address
    sequence  SEQ(A; B; C) of one key, A, B and C at random, a millisecond apart, within the time of
              WINDOW_EVENTS events of a key
    between   SEQ(A; B) of the same events with random values, whose B is more than ten times its A

An answer of `rules` is how many events are left of each host type, with the sum of their values; of `sequence` how many
matches there are, with a digest of their events. `once` gives an event to one match at most; `skip-past-last` is SQL's
AFTER MATCH SKIP PAST LAST ROW.
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from bench.peers.programs.timed import sequence_answer
from controllers.patterns.expression import parse
from workers.pipeline.matching.matcher import Matcher
from workers.pipeline.matching.retained import KEYED
from workers.pipeline.patterns.pattern import Pattern, parse_definitions
from workers.pipeline.rules.reference import Reference

EVERY_MS = 1
WINDOW_EVENTS = 50
BATCH_EVENTS = 200_000
PARTITIONS = 2  # of the events of a sequence, by key: each is in order
KEY_GROUPS = 64


def between_events(rows: int, keys: int) -> pa.Table:
    """Return the events of a sequence with random values, and an event of each key after its last window.

    A match can wait until an earlier start has failed. Flink notices the failure only when a later event of the key
    arrives. The times differ, because Flink drops an event that is not later than its watermark.
    """
    events = sequence_events(rows, keys)
    values = np.random.default_rng(keys + 1).random(rows)
    events = events.set_column(events.schema.get_field_index("value"), "value", pa.array(values))
    names = events["source"].unique()
    end = events["time"][-1].value + 1000 * (WINDOW_EVENTS * keys * EVERY_MS + 1)
    last = {
        "time": pa.array(end + 1000 * np.arange(len(names))).cast(events.schema.field("time").type),
        "type": pa.repeat("C", len(names)),
        "source": names,
        "value": pa.nulls(len(names), pa.float64()).fill_null(0.0),
    }
    return pa.concat_tables([events, pa.table(last)])


def sequence_events(rows: int, keys: int) -> pa.Table:
    """From long enough ago that none is of the future; `source` is the key, `id` the number of the row."""
    chance = np.random.default_rng(keys)
    begin_ms = int(time.time() - 2 * rows * EVERY_MS / 1000) * 1000
    times = pa.array(begin_ms + np.arange(rows) * EVERY_MS, pa.timestamp("ms", "UTC"))
    names = pa.array([f"source{number}" for number in range(keys)])
    return pa.table(
        {
            "time": times.cast(pa.timestamp("us", "UTC")),
            "type": pa.array(["A", "B", "C"]).take(pa.array(chance.integers(0, 3, rows))),
            "source": names.take(pa.array(chance.integers(0, keys, rows))),
            "value": np.arange(rows, dtype=float),
        }
    )


def write_hosts(folder: Path, hosts: Reference) -> None:
    """hosts.json: {prefix length: {first bits: [name, type]}}."""
    tables = hosts.networks.items()
    networks = {length: {str(bits): row for bits, row in rows.items()} for length, rows in tables}
    (folder / "hosts.json").write_text(json.dumps(networks))


def write_sequence(folder: Path, events: pa.Table, with_values: bool = False) -> None:
    """Write N.parquet and N.csv for each partition: milliseconds, number, type, and key, with or without the value."""
    place = np.array([int(name.removeprefix("source")) for name in events["source"].to_pylist()]) % PARTITIONS
    rows = pa.table(
        {
            "at_ms": pc.divide(events["time"].cast(pa.int64()), 1000),
            "id": pa.array(np.arange(events.num_rows)),
            "type": events["type"],
            "source": events["source"],
        }
    )
    if with_values:
        rows = rows.append_column("value", events["value"])
    (folder / "csv").mkdir()
    for number in range(PARTITIONS):
        part = rows.filter(pa.array(place == number))
        parquet.write_table(part, folder / f"{number}.parquet")
        csv.write_csv(part, folder / "csv" / f"{number}.csv", csv.WriteOptions(include_header=False))


def shorten_window(keys: int) -> float:
    """Half a millisecond less: whether a limit belongs to its window is no difference then."""
    return WINDOW_EVENTS * keys * EVERY_MS - 0.5


def run_matcher(events: pa.Table, consume: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer of Weir's own matcher, and what it is of the first and last event of each match alone."""
    found, _ = _match(events, "SEQ(A; B; C)", {}, consume)
    return sequence_answer(found), sequence_answer(match[::2] for match in found)


def run_between(events: pa.Table) -> tuple[dict[str, Any], float]:
    """Return the answer of Weir's matcher to `between` with the policy skip-past-last, and its seconds."""
    found, seconds = _match(events, "SEQ(A; B)", {"B": 'type == "B" and value > 10 * A.value'}, "skip-past-last")
    return sequence_answer(found), seconds


def _match(events: pa.Table, text: str, define: dict[str, str], consume: str) -> tuple[list[list[str]], float]:
    """Return the IDs of the events of each match, and the elapsed seconds of the matcher."""
    batches, keys = _as_batches(events)
    expression = parse(text, "pattern")
    defines = parse_definitions(expression, define, "define")
    within_us = round(1000 * shorten_window(keys))
    matcher = Matcher(Pattern("peers", expression, defines, "source", within_us, consume=consume))
    began, matches = time.perf_counter(), []
    for batch in batches:
        matches.append(matcher.take(batch))
        matches.append(matcher.advance(batch.column("time")[-1].as_py()))
    matches.append(matcher.finish())
    seconds = time.perf_counter() - began
    return [ids for found in matches for ids in found.get_event_ids()], seconds


def _as_batches(events: pa.Table) -> tuple[list[pa.RecordBatch], int]:
    """Return the events as the matcher reads them, and the number of keys."""
    keys = sorted(set(events["source"].to_pylist()))
    group_of = {key: number % KEY_GROUPS for number, key in enumerate(keys)}
    sources = events["source"].combine_chunks()
    columns = [
        events["time"].cast(pa.int64()).combine_chunks(),
        pa.array(np.arange(events.num_rows).astype(str)),
        events["type"].combine_chunks(),
        events["value"].combine_chunks(),
        sources,
        sources,
        pa.array([group_of[key] for key in sources.to_pylist()], pa.int32()),
    ]
    whole = pa.RecordBatch.from_arrays(columns, schema=KEYED)
    return [whole.slice(start, BATCH_EVENTS) for start in range(0, events.num_rows, BATCH_EVENTS)], len(keys)
