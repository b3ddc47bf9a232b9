"""Publishing and working through segments on real servers, each figure beside its limit in the same run.

Figures: events per second published from columns and from JSON lines into three nodes; bytes per second into one node;
events per second through the worker path (claim, decode, no-op, acknowledge) of two processes.
Limits: pipelined XADD of equal, ready-made payloads into the same node by the same persistence, taking turns with ours,
and beside it the same commands as bytes made before the clock runs (what the server and the socket take at all);
XREADGROUP and XACK of the same payloads, raw, by two processes.
"""

import io
import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import redis
from redis.typing import EncodableT, FieldT

from bench.queues.node_servers import node_servers, write_topology
from queues.events.block import BLOCK_EVENTS, BlockIds, EncodedBlock, cut, from_columns
from queues.events.lines import EventLines
from queues.publishing.client import Client
from queues.segments.gauge import GROUP
from queues.segments.segment import Segment

QUEUE = "bench"
NODES = ("n1", "n2", "n3")
PIPELINE = 32
ROUNDS = 7
NOW_US = 1_790_000_000_000_000
WORKER_CLAIM_EVENTS = 50_000
WORKER_EVENTS_PER_SECOND = 1_500_000  # how much is laid ready for each second of the worker's measurement


def run(seconds: float) -> dict[str, dict[str, float]]:
    """All figures, each measured for about `seconds`."""
    with node_servers(("control", *NODES)) as urls:
        nodes = {name: urls[name] for name in NODES}
        columnar = _publish_rate(urls["control"], nodes, _columns(), seconds)
        lines = _lines_rate(urls["control"], nodes, seconds)
        stored = _bytes_rates(urls["control"], {"n1": urls["n1"]}, seconds)
        work, raw = (_work_rate(list(nodes.values())[:2], body, seconds) for body in (work_path, raw_path))
    figures = {
        "publish_columnar_events_per_second": columnar,
        "publish_json_lines_events_per_second": lines,
        "publish_one_node_bytes_per_second": stored["ours"],
        "worker_events_per_second": work,
    }
    peers = {
        "xadd_ready_made_bytes_per_second": stored["xadd"],
        "xadd_prebuilt_wire_bytes_per_second": stored["wire"],
        "xreadgroup_raw_events_per_second": raw,
    }
    ratio = {
        "one_node_to_xadd": stored["ours"] / stored["xadd"],
        "one_node_to_prebuilt_wire": stored["ours"] / stored["wire"],
        "worker_to_raw": work / raw,
    }
    return {"figures": figures, "peers": peers, "ratio": ratio}


def _columns(rows: int = BLOCK_EVENTS * 1000, attribute_bytes: int = 0) -> pa.Table:
    """Columnar input such as a host's measurements; with attributes where payload is what counts."""
    numbers = np.arange(rows)
    table = {
        "time": pa.array(NOW_US + numbers, pa.timestamp("us", "UTC")),
        "type": pa.DictionaryArray.from_arrays(numbers % 4, ["cpu", "load", "memory", "disk"]).cast(pa.string()),
        "source": pa.DictionaryArray.from_arrays(numbers % 3, ["alpha", "beta", "gamma"]).cast(pa.string()),
        "value": numbers / 7,
    }
    if attribute_bytes:
        table["attributes"] = pa.array(['{"note":"' + "x" * attribute_bytes + '"}'] * rows)
    return pa.table(table)


def _publish_rate(control_url: str, nodes: dict[str, str], table: pa.Table, seconds: float) -> float:
    write_topology(control_url, QUEUE, nodes)
    with Client(control_url, "bench", timeout_seconds=5.0) as client:
        return _rate(lambda: client.publish(QUEUE, table).events, seconds, nodes)


def _lines_rate(control_url: str, nodes: dict[str, str], seconds: float) -> float:
    rows = ({"time": 1.79e9 + n, "type": "cpu", "source": "alpha", "key": f"core{n % 8}", "value": n / 7}
            for n in range(200_000))  # fmt: skip
    text = b"\n".join(map(orjson.dumps, rows))
    with Client(control_url, "bench", timeout_seconds=5.0) as client:

        def once() -> int:
            return client.publish_batches(QUEUE, EventLines(io.BytesIO(text))).events

        return _rate(once, seconds, nodes)


def _rate(once: Callable[[], int], seconds: float, nodes: dict[str, str]) -> float:
    """Events per second over `seconds` of publishing; emptying the nodes in between is not counted."""
    once()
    spent, events = 0.0, 0
    while spent < seconds:
        start = time.perf_counter()
        events += once()
        spent += time.perf_counter() - start
        _empty(nodes)
    return events / spent


def _bytes_rates(control_url: str, node: dict[str, str], seconds: float) -> dict[str, float]:
    """Ours and the limits, in turns on the same node; the medians of their turns."""
    write_topology(control_url, QUEUE, node)
    table = _columns(BLOCK_EVENTS * 256, attribute_bytes=200)
    blocks = cut(from_columns(table, NOW_US), BlockIds())
    size_bytes = sum(block.size_bytes for block in blocks)
    groups = [blocks[start : start + PIPELINE] for start in range(0, len(blocks), PIPELINE)]
    payloads = [[_fields(block) for block in group] for group in groups]
    wires = [_wire(group) for group in groups]
    with Client(control_url, "bench", timeout_seconds=5.0) as client, _raw(node["n1"]) as raw:
        ways: dict[str, Callable[[], Any]] = {
            "ours": lambda: client.publish(QUEUE, table),
            "xadd": lambda: _send_payloads(raw, payloads),
            "wire": lambda: _send_ready_made(raw, wires),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        end = time.perf_counter() + 3 * seconds
        while time.perf_counter() < end or len(rates["wire"]) < ROUNDS:
            for name, once in ways.items():
                _empty(node)
                rates[name].append(_turn(once, size_bytes))
    # The first turn of each connects and warms up.
    return {name: statistics.median(turns[1:]) for name, turns in rates.items()}


def _turn(once: Callable[[], Any], size_bytes: int) -> float:
    start = time.perf_counter()
    once()
    return size_bytes / (time.perf_counter() - start)


def _fields(block: EncodedBlock) -> dict[FieldT, EncodableT]:
    return {"i": block.block_id, "n": block.events, "t": block.newest_time_us, "d": bytes(block.data)}


def _wire(blocks: list[EncodedBlock]) -> tuple[bytes, int]:
    """XADD of these payloads as the bytes that go over the wire, made before the clock runs."""
    connections: Any = redis.connection
    pack = connections.PythonRespSerializer(6000, connections.Connection().encoder.encode).pack
    commands = (
        pack("XADD", "raw", "*", *(part for pair in _fields(block).items() for part in pair)) for block in blocks
    )
    return b"".join(piece for command in commands for piece in command), len(blocks)


def _send_payloads(node: redis.Redis, payloads: list[list[dict[FieldT, EncodableT]]]) -> None:
    for group in payloads:
        with node.pipeline(transaction=False) as pipeline:
            for fields in group:
                pipeline.xadd("raw", fields)
            pipeline.execute()


def _send_ready_made(node: redis.Redis, wires: list[tuple[bytes, int]]) -> None:
    connection: Any = node.connection_pool.get_connection()  # redis-py types none of what is called here
    try:
        for data, replies in wires:
            connection.send_packed_command([data])
            for _ in range(replies):
                connection.read_response()
    finally:
        node.connection_pool.release(connection)


def _work_rate(urls: list[str], body: Callable[[str, Connection], None], seconds: float) -> float:
    """Events per second of two processes, each at a segment of its own, started together."""
    blocks = cut(from_columns(_columns(), NOW_US), BlockIds())
    for url in urls:
        with _raw(url) as node:
            node.flushall()
            segment = Segment(node, QUEUE)
            for _ in range(max(1, int(seconds * WORKER_EVENTS_PER_SECOND / (BLOCK_EVENTS * len(blocks))))):
                segment.publish(blocks)
    context = multiprocessing.get_context("spawn")
    pipes = []
    for url in urls:
        here, there = context.Pipe()
        process = context.Process(target=body, args=(url, there), daemon=True)
        process.start()
        pipes.append((process, here))
    for _, pipe in pipes:
        pipe.recv()  # imported and connected
    for _, pipe in pipes:
        pipe.send("go")
    rates = [pipe.recv() for _, pipe in pipes]
    for process, _ in pipes:
        process.join()
    return float(sum(rates))


def work_path(url: str, pipe: Connection) -> None:
    """What a worker does, with a handler that does nothing."""
    with _raw(url) as node:
        segment = Segment(node, QUEUE)
        node.ping()
        pipe.send("ready")
        pipe.recv()
        start, events = time.perf_counter(), 0
        while claimed := segment.claim("bench", WORKER_CLAIM_EVENTS, 60.0):
            for block in claimed:
                block.block()
            events += segment.acknowledge([block.entry_id for block in claimed]).events
        pipe.send(events / (time.perf_counter() - start))


def raw_path(url: str, pipe: Connection) -> None:
    """The limit: the same payloads read and acknowledged, not decoded, not removed, not counted."""
    with _raw(url) as node:
        stream = Segment(node, QUEUE).stream
        node.xgroup_create(stream, GROUP, "0")
        pipe.send("ready")
        pipe.recv()
        start, blocks = time.perf_counter(), 0
        while reply := node.xreadgroup(GROUP, "bench", {stream: ">"}, WORKER_CLAIM_EVENTS // BLOCK_EVENTS):
            entries = reply[stream.encode()][0] if isinstance(reply, dict) else reply[0][1]
            blocks += node.xack(stream, GROUP, *(entry_id for entry_id, _ in entries))
        pipe.send(blocks * BLOCK_EVENTS / (time.perf_counter() - start))


def _empty(nodes: dict[str, str]) -> None:
    """Empty the nodes, and begin their files anew.

    A rewrite that a server starts by itself in the middle of a turn costs that turn a core.
    """
    for url in nodes.values():
        with _raw(url) as node:
            node.config_set("auto-aof-rewrite-percentage", 0)
            node.flushall()
            node.bgrewriteaof()
            while node.info("persistence")["aof_rewrite_in_progress"]:
                time.sleep(0.005)


def _raw(url: str) -> redis.Redis:
    return redis.Redis.from_url(url)
