"""Answers about queues and nodes: their configuration and their live figures."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Bytes, PerSecond, Points, Seconds, Share, build_enum_field
from console.api.schemas.snapshot import SnapshotNode, SnapshotQueue
from queues.models import Queue


class QueueRow(ApiAnswer):
    """The configuration of a queue, and its live figures."""

    name: str
    kind: Annotated[str, build_enum_field(Queue.Kind.values)]
    minimum_containers: int
    priority: Annotated[int, Field(description="0 (served first) to 9 (served last).")]
    handler: str
    events_per_worker: int
    tries: int
    handler_timeout_seconds: Seconds
    points: Annotated[dict[str, Points], Field(description="Keyed by node.")]
    live: Annotated[SnapshotQueue | None, Field(description="null: not observed in the last 30 s.")]


class QueueList(ApiAnswer):
    queues: list[QueueRow]


class NodeRow(ApiAnswer):
    """The configuration of a node, and its live figures."""

    name: str
    capacity_events_per_second: PerSecond
    capacity_memory_bytes: Bytes
    busy_threshold: Share
    toobusy_threshold: Share
    drained: bool
    cordoned: bool
    offline_since: datetime | None
    live: Annotated[SnapshotNode | None, Field(description="null: not observed in the last 30 s.")]


class NodeList(ApiAnswer):
    nodes: list[NodeRow]
