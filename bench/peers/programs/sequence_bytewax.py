"""SEQ(A; B; C) of one key in Bytewax, in memory and without recovery: `FOLDER WITHIN_MS PROCESSES`.

Each event is an item with its key; what waits for its next step stands in a deque of the key, as plain Python
would have it. A process reads the partitions that are its own.
"""

import multiprocessing
import socket
import sys
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow.parquet as parquet
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main, run_main
from timed import put_out, sequence_answer

FOLDER, WITHIN_MS, PROCESSES = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
BATCH = 10_000
Item = tuple[str, tuple[int, int, str]]


class Part(StatefulSourcePartition[Item, int]):
    def __init__(self, rows: list[Item]) -> None:
        self._rows, self._at = rows, 0

    def next_batch(self) -> list[Item]:
        rows = self._rows[self._at : self._at + BATCH]
        self._at += BATCH
        if not rows:
            raise StopIteration
        return rows

    def snapshot(self) -> int:
        return self._at


class Source(FixedPartitionedSource[Item, int]):
    """All are in memory before the clock begins."""

    def __init__(self, rows: dict[str, list[Item]]) -> None:
        self._rows = rows

    def list_parts(self) -> list[str]:
        return list(self._rows)

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Part:
        return Part(self._rows[for_part])


class Sequence(StatefulBatchLogic[Item, Any, Any]):
    def __init__(self, state: Any) -> None:
        self._for_b: deque[tuple[int, int]] = deque()
        self._for_c: deque[tuple[int, int, int]] = deque()

    def on_batch(self, values: list[tuple[int, int, str]]) -> tuple[Iterable[Any], bool]:
        matches = []
        for at_ms, number, kind in values:
            if kind == "A":
                self._for_b.append((at_ms, number))
                continue
            queue: deque[Any] = self._for_c if kind == "C" else self._for_b
            while queue and queue[0][0] < at_ms - WITHIN_MS:
                queue.popleft()
            if not queue:
                continue
            begun = queue.popleft()
            if kind == "B":
                self._for_c.append((*begun, number))
            else:
                matches.append((begun[1], begun[2], number))
        return matches, StatefulBatchLogic.RETAIN

    def snapshot(self) -> None:
        return None


class Found(StatelessSinkPartition[Any]):
    def __init__(self, into: list[Any]) -> None:
        self._into = into

    def write_batch(self, items: list[Any]) -> None:
        self._into += items


class Sink(DynamicSink[Any]):
    def __init__(self, into: list[Any]) -> None:
        self._into = into

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Found:
        return Found(self._into)


def rows_of(part: Path) -> list[Item]:
    columns = parquet.read_table(part).to_pydict()
    values = zip(columns["at_ms"], columns["id"], columns["type"], strict=True)
    return list(zip(columns["source"], values, strict=True))


def work(index: int, addresses: list[str], ready: Any, put: Any) -> None:
    """Gives (began, ended, matches); all begin together. A process has in memory what it reads."""
    into: list[Any] = []
    parts = sorted(FOLDER.glob("*.parquet"))
    rows = {part.stem: rows_of(part) for part in parts}
    flow = Dataflow("sequence")
    events = op.input("events", flow, Source(rows))
    matches = op.stateful_batch("match", events, Sequence)
    op.output("found", op.map("match_only", matches, lambda pair: pair[1]), Sink(into))
    ready.wait()
    began = time.time()
    if addresses:
        cluster_main(flow, addresses, index)
    else:
        run_main(flow)
    put.put((began, time.time(), into))


def free_ports() -> list[str]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(PROCESSES)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in held]
    for each in held:
        each.close()
    return addresses


def main() -> None:
    context = multiprocessing.get_context("fork")
    ready, put = context.Barrier(PROCESSES), context.Queue()
    addresses = free_ports() if PROCESSES > 1 else []
    processes = [context.Process(target=work, args=(index, addresses, ready, put)) for index in range(PROCESSES)]
    for process in processes:
        process.start()
    ran = [put.get() for _ in processes]
    for process in processes:
        process.join()
    seconds = max(ended for _, ended, _ in ran) - min(began for began, _, _ in ran)
    put_out(seconds, sequence_answer(match for _, _, matches in ran for match in matches))


main()
