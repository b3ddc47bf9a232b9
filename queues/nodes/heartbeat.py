"""The heartbeat that a node's agent sends once a second (`weir:heartbeats`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from common.stored_document import StoredDocument, decode_document, encode_document

# Liveness of nodes: the age of each node by the observer's own monotonic clock.
#
# The age counts from the last change of the node's `seq`. A jump of a wall clock, the node's or the observer's, can't
# make a node older or younger.

BEAT_SECONDS = 1.0
STALE_BEATS = 2
OFFLINE_BEATS = 3
# Beats and checks both happen once a second; this much jitter between them is not a missed beat.
JITTER_BEATS = 0.1


@dataclass(frozen=True)
class HeartbeatRecord:
    """The last known heartbeat of one node: its `seq`, and when (monotonic seconds) that was seen to change.

    `is_certain` is False until a change was seen: a heartbeat found at the start may be old.
    """

    seq: object
    changed_at_seconds: float
    is_certain: bool


@dataclass(frozen=True)
class Membership:
    """The observation of all nodes, a value; `record_sequences` returns the next one."""

    heard: Mapping[str, HeartbeatRecord] = field(default_factory=dict)

    def record_sequences(self, sequences: Mapping[str, Any], now_seconds: float) -> "Membership":
        """Record a check of the heartbeats: `sequences` is node → seq, `now_seconds` monotonic."""
        heard = dict(self.heard)
        for node, seq in sequences.items():
            before = heard.get(node)
            if before is None or before.seq != seq:
                # A node whose first beat arrives while we watch is certain; one found at the first check is not.
                heard[node] = HeartbeatRecord(seq, now_seconds, before is not None or bool(self.heard))
        return Membership(heard)

    def compute_age_seconds(self, node: str, now_seconds: float) -> float | None:
        """Return the seconds since the node's last beat was seen; None if none was ever seen for certain."""
        heard = self.heard.get(node)
        if heard is None or not heard.is_certain:
            return None
        return max(0.0, now_seconds - heard.changed_at_seconds)

    def count_missed_beats(self, node: str, now_seconds: float) -> int:
        """Return the number of missed beats. A node that was never seen has missed enough to be OFFLINE."""
        heard = self.heard.get(node)
        if heard is None:
            return OFFLINE_BEATS
        return int(max(0.0, now_seconds - heard.changed_at_seconds) / BEAT_SECONDS + JITTER_BEATS)

    def is_stale(self, node: str, now_seconds: float) -> bool:
        """Return True from the second missed beat: the node's state is then shown as its last one."""
        return self.count_missed_beats(node, now_seconds) >= STALE_BEATS

    def is_offline(self, node: str, now_seconds: float) -> bool:
        """Return True from the third missed beat."""
        return self.count_missed_beats(node, now_seconds) >= OFFLINE_BEATS


class UtilizationByPart(StoredDocument, frozen=True, gc=False):
    """Shares of capacity: CPU of the server's core, memory, and received events per second."""

    cpu: float
    memory: float
    events: float


class ContainerCounters(StoredDocument, frozen=True, kw_only=True, gc=False):
    """One queue's segment on the node (`queues.segments.gauge`).

    Counters only rise; the events of `received_events` and `sent_events` only moved between nodes.
    server_time_share: of the server's core; None before two samples.
    """

    inserted_events: int = 0
    removed_events: int = 0
    dead_events: int = 0
    received_events: int = 0
    sent_events: int = 0
    inserted_blocks: int | None = None
    inserted_bytes: int | None = None
    removed_blocks: int | None = None
    removed_bytes: int | None = None
    length_blocks: int | None = None
    pending_blocks: int | None = None
    retry_blocks: int | None = None
    dead_letters: int | None = None
    dead_error: str = ""  # of the newest dead letter
    leaving_blocks: int = 0
    leaving_letters: int = 0
    oldest_seconds: float | None = None
    server_time_share: float | None = None


class Heartbeat(StoredDocument, frozen=True, kw_only=True):
    """A heartbeat.

    seq changes with each beat; at: seconds since 1970 by the agent's clock. raw: the maximum of the parts;
    utilisation: the same, smoothed. containers: by queue. ahead_seconds: how far the agent's clock was ahead of the
    control server's at the previous beat.

    Of all queues, also of those that have left the node: damaged_blocks and unchecked_blocks (counters of
    `queues.segments.gauge`); missing_blocks: how many the server has lost, by its own counters; damage: the block that
    was found damaged last, at `damaged_at` (s since 1970 by the node's clock). dropped_blocks: how many fewer blocks a
    server had counted at a restart than at the heartbeat before, last at `dropped_at` (by the agent's clock).

    durability_problem: why the node rejects events of durable queues; "": it accepts them, or has none.
    """

    seq: int
    node: str = ""
    at: float = 0.0
    state: str | None = None
    utilisation: float | None = None
    raw: float | None = None
    parts: UtilizationByPart | None = None
    memory_bytes: int | None = None
    ahead_seconds: float | None = None
    damaged_blocks: int = 0
    unchecked_blocks: int = 0
    missing_blocks: int = 0
    damage: str = ""
    damaged_at: float | None = None
    dropped_blocks: int = 0
    dropped_at: float | None = None
    durability_problem: str = ""
    containers: dict[str, ContainerCounters] = {}

    def to_json(self) -> bytes:
        """Return the stored form."""
        return encode_document(self)

    @classmethod
    def from_json(cls, text: bytes | str) -> "Heartbeat":
        """Parse the stored form. Raises `BadDocument` that names the field."""
        return decode_document(cls, text, "heartbeat")
