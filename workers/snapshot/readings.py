"""The control server's data about the plant at one instant, read in two round trips and parsed."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import redis

from common.errors import BadTopology
from common.parsing import parse_whole_number
from common.stored_document import ReportReader, decode_readable_document
from controllers.retries.circuit import DestinationState
from queues import fairness, keys
from queues.nodes.heartbeat import Heartbeat
from queues.topology import KnownTopology, Topology
from workers.consumer.destination import get_destination_name, read_state
from workers.consumer.work_report import RUNNING_EXPIRES_SECONDS, SUBMISSION_EXPIRES_SECONDS, Latencies
from workers.documents.hosts import ReportedHost
from workers.documents.pipeline import PipelineReport
from workers.documents.queues import ReportedProducer

EMPTY = Topology(0, {}, {})
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers of one container: those submitted and not started, busy ones, and cumulative counts."""

    waiting_to_run: int = 0
    busy: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class Readings:
    """The data.

    `containers` has the workers by (queue, node), `latencies` the cumulative histogram by queue, `destinations` the
    states of what handlers have called, by name, and `ordinary_weights` those of fair queues.
    """

    topology: Topology
    heartbeats: Mapping[str, Heartbeat]
    producers: Mapping[Pair, ReportedProducer]
    hosts: Mapping[str, ReportedHost]
    pipeline: PipelineReport | None
    containers: Mapping[Pair, Workers]
    latencies: Mapping[str, Latencies]
    destinations: Mapping[str, DestinationState] = field(default_factory=dict)
    ordinary_weights: Mapping[str, float] = field(default_factory=dict)
    unreadable_nodes: Mapping[str, str] = field(default_factory=dict)
    unreadable_hosts: Mapping[str, str] = field(default_factory=dict)


def read(control: redis.Redis, now: float, known: KnownTopology, reader: ReportReader) -> Readings:
    """Read the readings from the control server.

    A topology that is missing reads as an empty one: there is nothing to show yet. So does one that can't be read,
    where none is known. A report that can't be read hides no other.
    """
    with control.pipeline(transaction=False) as pipe:
        pipe.get(keys.TOPOLOGY)
        for key in (keys.HEARTBEATS, keys.PRODUCERS, keys.HOSTS):
            pipe.hgetall(key)
        pipe.get(keys.PIPELINE)
        stored, heartbeats, producers, hosts, pipeline = pipe.execute()
    topology = EMPTY
    with suppress(BadTopology):
        topology = known.read(stored) if stored else EMPTY
    containers, latencies, destinations, weights = _read_work(control, topology, now)
    beats, unreadable_nodes = reader.read(Heartbeat, heartbeats.items(), "heartbeat")
    reported, unreadable_hosts = reader.read(ReportedHost, hosts.items(), "host report")
    pipelines, _ = reader.read(PipelineReport, [(b"pipeline", pipeline)] if pipeline else [], "status")
    return Readings(
        topology=topology,
        heartbeats=beats,
        producers={
            _pair(name.decode(errors="backslashreplace")): report
            for name, text in producers.items()
            if (report := decode_readable_document(ReportedProducer, text)) is not None
        },
        hosts=reported,
        pipeline=pipelines.get("pipeline"),
        containers=containers,
        latencies=latencies,
        destinations=destinations,
        ordinary_weights=weights,
        unreadable_nodes=unreadable_nodes,
        unreadable_hosts=unreadable_hosts,
    )


def _read_work(
    control: redis.Redis, topology: Topology, now: float
) -> tuple[dict[Pair, Workers], dict[str, Latencies], dict[str, DestinationState], dict[str, float]]:
    jobs = [queue for queue in topology.queues.values() if queue.kind == "jobs"]
    called = sorted({name for job in jobs if (name := get_destination_name(job.handler, job.handler_options))})
    pairs = [(queue.name, node) for queue in jobs for node in queue.points]
    with control.pipeline(transaction=False) as pipe:
        for queue, node in pairs:
            # Counted by time and not by presence: expired entries do not count, even before they are removed.
            for key, seconds in (
                (keys.SUBMITTED.build(queue, node), SUBMISSION_EXPIRES_SECONDS),
                (keys.RUNNING.build(queue, node), RUNNING_EXPIRES_SECONDS),
            ):
                pipe.zcount(key, now - seconds, now + seconds)
            pipe.hgetall(keys.WORK.build(queue, node))
        for job in jobs:
            pipe.hgetall(keys.LATENCY.build(job.name))
        for job in jobs:
            pipe.hget(keys.FAIRNESS.build(job.name), fairness.SETTINGS)
        for name in called:
            pipe.get(keys.DESTINATION.build(name))
        answers = pipe.execute()
    containers = {pair: _parse_workers(*answers[3 * place : 3 * place + 3]) for place, pair in enumerate(pairs)}
    rest = answers[3 * len(pairs) :]
    histograms, fair, states = rest[: len(jobs)], rest[len(jobs) : 2 * len(jobs)], rest[2 * len(jobs) :]
    latencies = {job.name: Latencies.from_hash(h) for job, h in zip(jobs, histograms, strict=True)}
    destinations = {name: read_state(text) for name, text in zip(called, states, strict=True) if text is not None}
    weights = {
        job.name: weight
        for job, stored in zip(jobs, fair, strict=True)
        if (weight := fairness.parse_ordinary_weight(stored)) is not None
    }
    return containers, latencies, destinations, weights


def _parse_workers(waiting_to_run: int, busy: int, stored: Mapping[bytes, bytes]) -> Workers:
    """Return the counts that are numbers; another version or a user may have written others."""
    read = {
        name.decode(errors="replace"): parse_whole_number(value.decode(errors="replace"))
        for name, value in stored.items()
        if name != b"trouble"
    }
    counts = {name: count for name, count in read.items() if count is not None}
    return Workers(waiting_to_run, busy, counts, stored.get(b"trouble", b"").decode(errors="replace") or None)


def _pair(name: str) -> Pair:
    producer, _, queue = name.rpartition("|")
    return producer, queue
