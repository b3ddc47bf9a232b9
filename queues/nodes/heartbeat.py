"""The heartbeat that a node's agent sends once a second (`weir:heartbeats`)."""

from common.stored_document import StoredDocument, decode_document, encode_document


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
    leaving_blocks: int = 0
    oldest_seconds: float | None = None
    server_time_share: float | None = None


class Heartbeat(StoredDocument, frozen=True, kw_only=True):
    """A heartbeat.

    seq changes with each beat; at: seconds since 1970 by the agent's clock. raw: the maximum of the parts;
    utilisation: the same, smoothed. containers: by queue. ahead_seconds: how far the agent's clock was ahead of the
    control server's at the previous beat.
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
    containers: dict[str, ContainerCounters] = {}

    def to_json(self) -> bytes:
        """Return the stored form."""
        return encode_document(self)

    @classmethod
    def from_json(cls, text: bytes | str) -> "Heartbeat":
        """Parse the stored form. Raises `BadDocument` that names the field."""
        return decode_document(cls, text, "heartbeat")
