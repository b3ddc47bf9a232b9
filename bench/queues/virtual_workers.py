"""Producers and workers of a fair queue on virtual time, with the real splitter, segment, and server.

Handling and waiting cost no time, so that a run is repeatable. Its latencies show how events are divided and given out,
and not how busy the host is.
"""

import heapq
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import redis

from queues.events.block import SCHEMA, BlockIds, EncodedBlock, cut, from_columns
from queues.fairness import LaneWeights
from queues.publishing.client import build_lane_id
from queues.publishing.lanes import KEY, LaneSplitter
from queues.segments.segment import Segment
from workers.consumer.claim_size import ClaimSize

FLOOD = "flood"
NEVER_IDLE_SECONDS = 86_400.0
NOW_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class VirtualLoad:
    """What is published. load: of the ordinary keys, as a share of the workers' capacity.

    flood_shares: rate of the flood, in rates of one ordinary key. flood_keys: number of keys that it is divided over.
    """

    load: float
    flood_shares: float = 0.0
    flood_keys: int = 1
    keys: int = 1_000


@dataclass(frozen=True)
class VirtualFigures:
    """p95_seconds: of ordinary events, from publishing to the end of handling. waiting_p95_seconds: to its start."""

    p95_seconds: float
    waiting_p95_seconds: float
    events_per_second: float
    flood_per_second: float


@dataclass
class VirtualWorkers:
    """Workers that handle one event in event_seconds. claim_seconds: of the calls of one claim."""

    node: redis.Redis
    is_fair: bool
    workers: int = 4
    producers: int = 2
    event_seconds: float = 0.001
    every_seconds: float = 0.05
    poll_seconds: float = 0.02
    claim_seconds: float = 0.001
    events_per_worker: int = 2_048
    warm_up_seconds: float = 3.0
    _published: dict[str, tuple[float, int]] = field(default_factory=dict)  # block → time, events of the flood
    _waits: list[tuple[float, float, int]] = field(default_factory=list)  # until the start, until the end, events
    _flood_events: int = 0
    _now: float = 0.0
    _until: float = 0.0

    def run(self, load: VirtualLoad, seconds: float, seed: int = 0) -> VirtualFigures:
        """Work for `seconds` after the warm-up."""
        random, segment, ids = np.random.default_rng(seed), Segment(self.node, "virtual"), BlockIds()
        splitters = [LaneSplitter(lambda: self._now) for _ in range(self.producers)]
        sizes, left = [ClaimSize(self.is_fair) for _ in range(self.workers)], [self.events_per_worker] * self.workers
        due = [(number * self.every_seconds / self.producers, 0, number) for number in range(self.producers)]
        due += [(random.uniform(0, self.poll_seconds), 1, number) for number in range(self.workers)]
        heapq.heapify(due)
        self._until = self.warm_up_seconds + seconds
        while due[0][0] < self._until:
            self._now, is_worker, number = heapq.heappop(due)
            if not is_worker:
                segment.publish(self._publish(load, random, splitters[number], ids))
                heapq.heappush(due, (self._now + self.every_seconds, 0, number))
                continue
            free_at, events = self._work(
                segment, f"w{number}", min(left[number], sizes[number].ordinary), sizes[number]
            )
            left[number] -= events
            if events == 0 or left[number] <= 0:  # the next short-lived worker
                sizes[number], left[number] = ClaimSize(self.is_fair), self.events_per_worker
                free_at += self.poll_seconds * random.uniform(0.5, 1.5)
            heapq.heappush(due, (free_at, 1, number))
        return self._summarize(seconds)

    def _publish(
        self, load: VirtualLoad, random: np.random.Generator, splitter: LaneSplitter, ids: BlockIds
    ) -> list[EncodedBlock]:
        expected = load.load * self.workers / self.event_seconds / self.producers * self.every_seconds
        names = [f"key-{key}" for key in random.integers(0, load.keys, random.poisson(expected))]
        flood = random.poisson(expected / load.keys * load.flood_shares)
        names += [f"{FLOOD}-{key}" for key in random.integers(0, load.flood_keys, flood)]
        random.shuffle(names)
        batch = from_columns(pa.table({"type": ["order"] * len(names), "key": names}, _INPUT), NOW_US)
        blocks: list[EncodedBlock] = []
        for lane, part in splitter.split(batch, {}) if self.is_fair else [(0, batch)]:
            is_flood, start = _find_flood(part), 0
            for block in cut(part, partial(build_lane_id, lane, ids) if lane else ids):
                end = start + block.events
                self._published[block.block_id] = self._now, int(is_flood[start:end].sum())
                blocks.append(block)
                start = end
        return blocks

    def _work(self, segment: Segment, name: str, left: int, size: ClaimSize) -> tuple[float, int]:
        """Claim, and return when the worker is free, and the events that it has handled by then."""
        weights, limit = LaneWeights() if self.is_fair else None, min(left, size.ordinary)
        claimed = segment.claim(name, limit, NEVER_IDLE_SECONDS, weights=weights, diverted_events=size.diverted)
        start = self._now + self.claim_seconds * bool(claimed)
        for block in claimed:
            published, flood = self._published.pop(block.block_id)
            end = start + block.events * self.event_seconds
            if self.warm_up_seconds <= end < self._until:
                self._flood_events += flood
                self._waits.append((start - published, end - published, block.events - flood))
            start = end
        events = sum(block.events for block in claimed)
        size.record(events, start - self._now)
        segment.acknowledge([block.entry_id for block in claimed])
        return start, events

    def _summarize(self, seconds: float) -> VirtualFigures:
        waits = np.array(self._waits)
        events = int(waits[:, 2].sum())
        return VirtualFigures(
            _compute_p95(waits[:, 1], waits[:, 2]),
            _compute_p95(waits[:, 0], waits[:, 2]),
            (events + self._flood_events) / seconds,
            self._flood_events / seconds,
        )


_INPUT = pa.schema([SCHEMA.field("type"), SCHEMA.field("key")])


def _find_flood(batch: pa.RecordBatch) -> Any:
    return pc.starts_with(batch.column(KEY), FLOOD).to_numpy(zero_copy_only=False)


def _compute_p95(seconds: Any, events: Any) -> float:
    order = np.argsort(seconds)
    counted = np.cumsum(events[order])
    return float(seconds[order][np.searchsorted(counted, 0.95 * counted[-1])])
