"""The matcher alone, in one process: Arrow batches in, matches out, state carried from batch to batch.

SEQ(A; B; C) within 10 s over A, B and C in equal shares, so that every event matters; 200 and 10,000 keys. Conditions,
bringing together by key, matching and the matches' events are all in it. `…_saved`: the state of all 64 key groups is
also packed after each batch and read again before the next. `between_…`: SEQ(A; B) whose B is more than ten times its
A. Seconds are of processor time: one thread does it all, so that is what it takes when nothing else runs; `wall_…`
goes by the clock. The plain Python peer does the same work event by event, and must find the same matches; the others'
figures were measured on such a machine.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from controllers.patterns.expression import parse
from workers.pipeline.matching.matcher import Matcher
from workers.pipeline.matching.retained import KEYED
from workers.pipeline.patterns.pattern import Pattern, parse_definitions

BATCH_EVENTS = 200_000
BATCHES = 5
EVENTS_PER_SECOND = 100_000  # of event time: a window holds a million events
WITHIN_US = 10_000_000
KEY_GROUPS = 64
TARGET_EVENTS_PER_SECOND = 2_000_000
ELSEWHERE = {
    "flink_2_3_match_recognize_200_keys_events_per_second": 78_000.0,
    "flink_2_3_match_recognize_10000_keys_events_per_second": 131_000.0,
    "bytewax_in_memory_least_events_per_second": 436_000.0,
    "bytewax_in_memory_most_events_per_second": 1_450_000.0,
}


def run(seconds: float) -> dict[str, dict[str, float]]:
    """The best of as many passes as `seconds` leave room for; each pass is a million events."""
    sequence = pattern("SEQ(A; B; C)")
    few, many = stream(200), stream(10_000)
    share_seconds = seconds / 8
    figures = {
        "events_per_second_200_keys": _rate(sequence, few, share_seconds),
        "events_per_second_10000_keys": _rate(sequence, many, share_seconds),
        "wall_events_per_second_200_keys": _rate(sequence, few, share_seconds, clock=time.perf_counter),
        "wall_events_per_second_10000_keys": _rate(sequence, many, share_seconds, clock=time.perf_counter),
        "events_per_second_200_keys_saved": _rate(sequence, few, share_seconds, saved=True),
        "events_per_second_10000_keys_saved": _rate(sequence, many, share_seconds, saved=True),
        "skip_past_last_events_per_second": _rate(pattern("SEQ(A; B; C)", "skip-past-last"), many, share_seconds),
        "repeated_type_events_per_second": _rate(pattern("SEQ(A; B; A)"), few, 0.0),
        "and_events_per_second": _rate(pattern("AND(A, B, C)"), few, 0.0),
        "between_events_per_second_10000_keys": _rate(compared(), many, share_seconds),
        "between_rows_events_per_second_10000_keys": _rate(compared("skip-past-last"), many, 0.0),
        "any_pattern_events_per_second": _rate(pattern("SEQ(A; B+; C)"), few[:1], 0.0),
        "matches_share_10000_keys": 3 * _matches(sequence, many) / (BATCHES * BATCH_EVENTS),
        "state_bytes_10000_keys": float(_state_bytes(sequence, many)),
    }
    plain = plainly(few, 200)
    peers = {"plain_python_events_per_second": plain, **ELSEWHERE}
    least = min(figures["events_per_second_200_keys"], figures["events_per_second_10000_keys"])
    ratio = {
        "of_target": least / TARGET_EVENTS_PER_SECOND,
        "to_plain_python": figures["events_per_second_200_keys"] / plain,
        "to_flink": least / ELSEWHERE["flink_2_3_match_recognize_10000_keys_events_per_second"],
        "to_bytewax": least / ELSEWHERE["bytewax_in_memory_most_events_per_second"],
    }
    return {"figures": figures, "peers": peers, "ratio": ratio}


def compared(consume: str = "once") -> Pattern:
    """A pattern with a condition between its events."""
    return pattern("SEQ(A; B)", consume, {"B": 'type == "B" and value > 10 * A.value'})


def pattern(text: str, consume: str = "once", define: dict[str, str] | None = None) -> Pattern:
    expression = parse(text, "pattern")
    defines = parse_definitions(expression, define or {}, "define")
    return Pattern("bench", expression, defines, "source", WITHIN_US, consume=consume)


def stream(keys: int) -> list[pa.RecordBatch]:
    """Batches in event-time order."""
    chance, rows = np.random.default_rng(keys), BATCHES * BATCH_EVENTS
    hosts = chance.integers(0, keys, rows)
    names = pa.array([f"host{number}" for number in range(keys)]).take(pa.array(hosts))
    columns = [
        pa.array(np.arange(rows) * 1_000_000 // EVENTS_PER_SECOND),
        pa.array(np.char.add("e", np.arange(rows).astype(str))),
        pa.array(["A", "B", "C"]).take(pa.array(chance.integers(0, 3, rows))),
        pa.array(chance.random(rows)),
        names,
        names,
        pa.array((hosts % KEY_GROUPS).astype(np.int32)),
    ]
    whole = pa.RecordBatch.from_arrays(columns, schema=KEYED)
    return [whole.slice(number * BATCH_EVENTS, BATCH_EVENTS) for number in range(BATCHES)]


def _rate(
    wanted: Pattern,
    batches: list[pa.RecordBatch],
    seconds: float,
    saved: bool = False,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """Events per second of the quickest pass: what it takes when nothing else runs."""
    rows: int = sum(batch.num_rows for batch in batches)
    return rows / min(_time_work(lambda: _go_over(wanted, batches, saved), seconds, clock))


def _time_work(work: Callable[[], object], seconds: float, clock: Callable[[], float]) -> Iterator[float]:
    end = clock() + seconds
    while True:
        start = clock()
        work()
        yield clock() - start
        if clock() >= end:
            return


def _go_over(wanted: Pattern, batches: list[pa.RecordBatch], saved: bool) -> tuple[Matcher, int]:
    matcher, matches = Matcher(wanted), 0
    for batch in batches:
        matches += len(matcher.take(batch))
        matcher.advance(batch.column("time")[-1].as_py())
        if saved:
            matcher = Matcher.resume(wanted, matcher.save())
    return matcher, matches


def _matches(wanted: Pattern, batches: list[pa.RecordBatch]) -> int:
    return _go_over(wanted, batches, saved=False)[1]


def _state_bytes(wanted: Pattern, batches: list[pa.RecordBatch]) -> int:
    return sum(map(len, _go_over(wanted, batches, saved=False)[0].save().values()))


def plainly(batches: list[pa.RecordBatch], keys: int) -> float:
    """Events per second of the same pattern in plain Python. Raises AssertionError where the matches differ."""
    start = time.process_time()
    matches = sum(_plain_matches(batches))
    seconds = time.process_time() - start
    expected = _matches(pattern("SEQ(A; B; C)"), batches)
    if matches != expected:
        raise AssertionError(f"plain Python finds {matches} matches over {keys} keys, the matcher {expected}")
    rows: int = sum(batch.num_rows for batch in batches)
    return rows / seconds


def _plain_matches(batches: list[pa.RecordBatch]) -> Iterator[bool]:
    """For each event whether it completes a match: SEQ(A; B; C) as the contract words it."""
    waiting: dict[str, tuple[deque[Any], deque[Any]]] = defaultdict(lambda: (deque(), deque()))
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("time", "id", "type", "match_key"))
        for time_us, id_, kind, key in zip(*columns, strict=True):
            for_b, for_c = waiting[key]
            if kind == "A":
                for_b.append((time_us, id_))
                continue
            queue = for_c if kind == "C" else for_b
            while queue and queue[0][0] < time_us - WITHIN_US:
                queue.popleft()
            if queue and kind == "B":
                for_c.append((*queue.popleft(), id_))
            elif queue:
                queue.popleft()
                yield True
