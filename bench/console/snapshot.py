"""How long a large plant's snapshot takes to be read into its type, written, and published with its patch.

200 nodes and 100 queues of 10 containers, every number another. The peers are the same JSON as dicts: what `orjson`
takes, and for publishing twice encoded, as it was done before snapshots had a type.
"""

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import orjson

from common.stored_document import convert_to_plain, replace_fields
from queues.nodes.heartbeat import UtilizationByPart
from workers.coordination.merge_patch import compute_patch, document_difference
from workers.documents.loops import LoopStatus
from workers.documents.nodes import NodeStatus
from workers.documents.queues import ContainerStatus, QueueStatus
from workers.documents.snapshot import Snapshot
from workers.snapshot.observer import encode_message

NODES, QUEUES, CONTAINERS_A_QUEUE = 200, 100, 10


def run(seconds: float) -> dict[str, Any]:
    """Each measurement takes about `seconds` / 3."""
    chance = random.Random(7)
    before, snapshot = large_snapshot(chance, 1), large_snapshot(chance, 2)
    text, document, old = snapshot.to_json(), convert_to_plain(snapshot), convert_to_plain(before)

    def publish() -> None:
        stored = snapshot.to_json()
        encode_message(snapshot, stored, document_difference(before, snapshot))

    def publish_dicts() -> None:
        patch = compute_patch(old, document)
        orjson.dumps(document)
        orjson.dumps({"seq": 2, "at": 0.0, "topic": "plant", "snapshot": document, "delta": patch})

    figures = {
        "decode_seconds": median_seconds(lambda: Snapshot.from_json(text), seconds / 3),
        "encode_seconds": median_seconds(snapshot.to_json, seconds / 3),
        "publish_seconds": median_seconds(publish, seconds / 3),
    }
    peers = {
        "decode_seconds_orjson_dict": median_seconds(lambda: orjson.loads(text), seconds / 3),
        "encode_seconds_orjson_dict": median_seconds(lambda: orjson.dumps(document), seconds / 3),
        "publish_seconds_orjson_dict": median_seconds(publish_dicts, seconds / 3),
    }
    return {
        "figures": {"snapshot_bytes": len(text), **figures},
        "peers": peers,
        "ratio": {name: value / peers[f"{name}_orjson_dict"] for name, value in figures.items()},
    }


def median_seconds(work: Callable[[], object], seconds: float) -> float:
    """Of one call, over at least five: in processor time, since other processes are at work, too."""
    taken: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(taken) < 5:
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def large_snapshot(chance: random.Random, seq: int) -> Snapshot:
    """Every number drawn anew."""
    names = [f"node{number:03}" for number in range(NODES)]
    queues = {f"queue{number:03}": _queue(chance, number, names) for number in range(QUEUES)}
    loops = {
        f"worker_rate/{queue}/{node}": LoopStatus(
            id=place, law="worker_rate", target={"queue": queue, "node": node}, measured=_events(chance)
        )
        for place, (queue, node) in enumerate((queue, node) for queue, row in queues.items() for node in row.containers)
    }
    nodes = {name: _node(chance) for name in names}
    return Snapshot(seq=seq, at=1_790_000_000.2 + seq, queues=queues, nodes=nodes, loops=loops)


def _node(chance: random.Random) -> NodeStatus:
    parts = UtilizationByPart(chance.random(), chance.random(), chance.random())
    return NodeStatus(
        state="NORMAL",
        age_seconds=_rate(chance),
        utilisation=parts.cpu,
        raw=parts.cpu,
        parts=parts,
        in_per_second=_rate(chance),
        out_per_second=_rate(chance),
        memory_bytes=_events(chance),
        points=500,
        containers=5,
        last_state="NORMAL",
    )


def _queue(chance: random.Random, number: int, names: list[str]) -> QueueStatus:
    places = [names[(7 * number + place) % NODES] for place in range(CONTAINERS_A_QUEUE)]
    return QueueStatus(
        kind="jobs",
        handler="emulate",
        in_per_second=_rate(chance),
        out_per_second=_rate(chance),
        waiting_events=_events(chance),
        wait_seconds=_rate(chance),
        containers={name: _container(chance) for name in places},
    )


def _container(chance: random.Random) -> ContainerStatus:
    calm = ContainerStatus(points=100, waiting_to_run=1, workers_started=_events(chance), workers_busy=1)
    return replace_fields(
        calm,
        waiting_events=_events(chance),
        waiting_bytes=_events(chance),
        in_per_second=_rate(chance),
        out_per_second=_rate(chance),
        dead_per_second=0.0,
        load=chance.random(),
        server_time_share=chance.random(),
        oldest_seconds=_rate(chance),
        inserted_events=_events(chance),
        removed_events=_events(chance),
        dead_letters=0,
        retry_blocks=0,
    )


def _rate(chance: random.Random) -> float:
    return round(chance.uniform(10, 400), 3)


def _events(chance: random.Random) -> int:
    return chance.randrange(1_000_000)
