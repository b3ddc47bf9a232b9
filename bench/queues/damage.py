"""Bit flips in stored blocks: how many are found by the next process that takes the block, and what the check costs.

Flips in memory: one bit of each block is inverted, in a random name or value of its entry, and the block is written
back under its ID. Then workers claim the blocks, a pipeline reads them, or a transfer moves them. Each damaged block
must be found, named, and never handled. Flips in the append-only file: one bit of the file of a stopped server is
inverted, and the server is started again.

Reference: publishing and claiming the same blocks without checksums, in turns with ours.
"""

import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import redis

from bench.queues.bit_flips import find_log, flip_bit, flip_random_bit, rewrite_entries
from bench.queues.node_servers import node_servers
from queues.events.block import BLOCK_EVENTS, Block, BlockIds, EncodedBlock, cut, decode, from_columns
from queues.nodes.server import ServerConfig, free_port, prepare_server_command
from queues.segments import segment as segments
from queues.segments.checksum import DAMAGED
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import Segment, StoredBlock
from workers.placement.transfer import Route

QUEUE = "bench"
FLIPS = 10_000
FILE_FLIPS = 200
BATCH = 500
FILE_BLOCKS = 20
SMALL_EVENTS = 8  # of a block whose bits are flipped: few, so that each field is hit often
NOW_US = 1_790_000_000_000_000
START_SECONDS = 20.0
NEVER_IDLE = 3_600.0
CLAIM_EVENTS = 50_000
MIN_TURNS = 7  # of each way


def run(seconds: float, seed: int = 1) -> dict[str, Any]:
    """The counts of flips by what became of them, and the price of the check. seconds: of each measured rate."""
    chance = Random(seed)
    with node_servers(("n1", "n2")) as urls:
        nodes = {name: redis.Redis.from_url(url) for name, url in urls.items()}
        memory = _flip_in_memory(nodes, chance)
        price = _measure_price(nodes["n1"], seconds)
        for node in nodes.values():
            node.close()
    file = _flip_in_files(chance)
    return {
        "figures": {**memory, **file, **price["ours"]},
        "peers": {
            **price["unchecked"],
            "limit_flips_missed": 0,
            "limit_flips_handled": 0,
            "limit_counter_errors": 0,
            "limit_file_flips_handled": 0,
        },
        "ratio": {f"{name}_to_unchecked": price["ours"][name] / price["unchecked"][name] for name in price["ours"]},
    }


def _build_blocks(count: int, events: int) -> list[EncodedBlock]:
    rows = np.arange(count * events)
    table = pa.table({
        "time": pa.array(NOW_US + rows, pa.timestamp("us", "UTC")),
        "type": np.array(["cpu", "load", "memory", "disk"])[rows % 4],
        "source": np.array(["alpha", "beta", "gamma"])[rows % 3],
        "value": rows / 7,
    })  # fmt: skip
    return cut(from_columns(table, NOW_US), BlockIds(), events)


def _flip_in_memory(nodes: dict[str, redis.Redis], chance: Random) -> dict[str, float]:
    counts: Counter[str] = Counter()
    takers = (_claim, _read, _move)
    at = {name: Segment(node, QUEUE) for name, node in nodes.items()}
    for turn in range(FLIPS // BATCH):
        for node in nodes.values():
            node.flushall()
        blocks = _build_blocks(BATCH, SMALL_EVENTS)
        at["n1"].publish(blocks)
        rewrite_entries(at["n1"].node, at["n1"].stream, lambda _, parts: flip_random_bit(parts, chance))
        handled = takers[turn % len(takers)](at)
        letters = list(DeadLetters(at["n1"]).iterate(2 * BATCH))
        counters = at["n1"].get_counters()
        counts["flips"] += len(blocks)
        counts["flips_handled"] += handled
        counts["flips_found"] += counters["damaged_blocks"]
        counts["flips_named"] += sum(letter.kind == DAMAGED and "is damaged: " in letter.error for letter in letters)
        counts["counter_errors"] += sum(
            counters[f"inserted_{unit}"] != counters[f"removed_{unit}"] for unit in ("events", "blocks", "bytes")
        )
    return {**counts, "flips_missed": counts["flips"] - counts["flips_found"]}


def _claim(at: dict[str, Segment]) -> int:
    """Claim blocks as a worker does. Returns the number of blocks that it would have handled."""
    handled = 0
    while claimed := at["n1"].claim("w1", CLAIM_EVENTS, NEVER_IDLE):
        for block in claimed:
            if block.damage is None:
                handled += 1
                at["n1"].acknowledge([block.entry_id])
            else:
                at["n1"].quarantine(block.entry_id, block.damage, "w1")
    return handled


def _read(at: dict[str, Segment]) -> int:
    """Read the blocks as a pipeline does."""
    handled = 0
    for stored in at["n1"].read("0-0", "+"):
        if stored.damage is None:
            handled += 1
        else:
            at["n1"].quarantine(stored.entry_id, stored.damage, "pipeline")
    return handled


def _move(at: dict[str, Segment]) -> int:
    """Move the blocks as a plan does."""
    return Route("n1", at["n1"], {"n2": at["n2"]}, {"n2": 1}).run(2**40).blocks


def _flip_in_files(chance: Random) -> dict[str, float]:
    """Return what became of flips in a stopped server's file.

    - refused: the server did not start.
    - found: a damaged block was found.
    - missing: blocks are gone, and the counters of the segment show how many.
    - truncated: blocks are gone with their counters; the agent notices that the counters went back.
    - counters: all blocks are there, and a counter is wrong.
    - harmless: all blocks and counters are as before.
    - handled: a block with other content was not found. None may be.
    """
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        config = ServerConfig(free_port(), Path(folder) / "n1")
        blocks = _build_blocks(FILE_BLOCKS, SMALL_EVENTS)
        published = {block.block_id: bytes(block.data) for block in blocks}
        with _serve(config) as node:
            assert node is not None
            for block in blocks:
                Segment(node, QUEUE).publish([block])
        log = find_log(config.folder)
        intact = log.read_bytes()
        for _ in range(FILE_FLIPS):
            log.write_bytes(flip_bit(intact, chance.randrange(8 * len(intact))))
            with _serve(config) as node:
                counts[f"file_flips_{_judge(node, published)}"] += 1
    return {"file_flips": FILE_FLIPS, "file_flips_handled": 0, **counts}


def _judge(node: redis.Redis | None, published: dict[str, bytes]) -> str:
    """Return what a flip in the file has led to."""
    if node is None:
        return "refused"
    segment = Segment(node, QUEUE)
    stored = list(segment.read("0-0", "+"))
    if any(block.damage is not None for block in stored):
        return "found"
    if any(published.get(block.block_id) != block.data for block in stored):
        return "handled"
    gauge = segment.measure()
    counted = tuple(gauge[f"inserted_{unit}"] - gauge[f"removed_{unit}"] for unit in ("events", "blocks", "bytes"))
    there = sum(block.events for block in map(_decode, stored)), len(stored), sum(len(block.data) for block in stored)
    if len(stored) == len(published):
        return "harmless" if counted == there else "counters"
    return "truncated" if counted == there else "missing"


def _decode(stored: StoredBlock) -> Block:
    return decode(stored.block_id, stored.data)


@contextmanager
def _serve(config: ServerConfig) -> Iterator[redis.Redis | None]:
    """Start a server on its files, and yield a connection; None if it refuses to start."""
    process = subprocess.Popen(
        [*prepare_server_command(config), "--protected-mode", "no"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    node = redis.Redis.from_url(config.url)
    try:
        yield node if _await_start(process, node) else None
    finally:
        node.close()
        process.terminate()
        process.wait()


def _await_start(process: subprocess.Popen[bytes], node: redis.Redis) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None:
        try:
            return bool(node.ping())
        except redis.ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    return False


def _measure_price(node: redis.Redis, seconds: float) -> dict[str, dict[str, float]]:
    """Return events per second of publishing, and of claiming, decoding, and acknowledging, with and without checks.

    The best of many short turns counts, because other load on the machine only slows a turn.
    """
    blocks = _build_blocks(1_000, BLOCK_EVENTS)
    ways: dict[str, Callable[[], Any]] = {"ours": _check, "unchecked": _skip_checks}
    rates: dict[str, dict[str, list[float]]] = {way: {"publish": [], "claim": []} for way in ways}
    end = time.perf_counter() + 2 * seconds
    while time.perf_counter() < end or len(rates["ours"]["claim"]) < MIN_TURNS:
        for way, context in ways.items():
            node.flushall()
            with context():
                for name, step in (("publish", _publish_all), ("claim", _work_all)):
                    start = time.perf_counter()
                    events = step(Segment(node, QUEUE), blocks)
                    rates[way][name].append(events / (time.perf_counter() - start))
    return {
        way: {f"{name}_events_per_second": max(turns) for name, turns in measured.items()}
        for way, measured in rates.items()
    }


def _publish_all(segment: Segment, blocks: list[EncodedBlock]) -> int:
    for start in range(0, len(blocks), 32):
        segment.publish(blocks[start : start + 32])
    return sum(block.events for block in blocks)


def _work_all(segment: Segment, blocks: list[EncodedBlock]) -> int:
    events = 0
    while claimed := segment.claim("w1", CLAIM_EVENTS, NEVER_IDLE):
        for block in claimed:
            block.block()
        events += segment.acknowledge([block.entry_id for block in claimed]).events
    return events


@contextmanager
def _check() -> Iterator[None]:
    yield


@contextmanager
def _skip_checks() -> Iterator[None]:
    """Publish and claim as if computing and comparing took no time. The server stores the same bytes."""
    with (
        patch.object(segments, "compute_checksum", lambda *parts: b"0123456789abcdef %b 01234567" % parts[1]),
        patch.object(segments, "find_damage", lambda *entry: None),
    ):
        yield
