"""Plans that move points: the open ones in the snapshot, and whole plans."""

from typing import Any

from msgspec import field

from common.stored_document import StoredDocument


class PlanMove(StoredDocument, frozen=True, kw_only=True):
    """A move of a queue's points from one node to another, with the points moved and events transferred."""

    queue: str
    source: str = field(name="from")
    target: str = field(name="to")
    points: int
    state: str = "pending"
    points_moved: int = 0
    blocks: int = 0
    blocks_total: int | None = 0
    events: int = 0
    bytes: int = 0


class PlanStatus(StoredDocument, frozen=True, kw_only=True):
    """An open plan.

    hash: what an approval refers to. empties: the node to be emptied. progress_share: 0 to 1.
    """

    id: int
    state: str
    hash: str = ""
    kind: str = ""
    title: str = ""
    points: int = 0
    progress_share: float = 0.0
    note: str = ""
    empties: str | None = None
    expires_at: float | None = None
    moves: list[PlanMove] = []


class NodeForecast(StoredDocument, frozen=True, kw_only=True, gc=False):
    """A node before or after a plan."""

    utilisation: float | None = None
    state: str | None = None
    points: int = 0


class PlanDocument(PlanStatus, frozen=True, kw_only=True):
    """A whole plan.

    before, after: by node. owner: a person, a law, or "recovery". Times in seconds since 1970.
    """

    short_hash: str = ""
    reason: str = ""
    before: dict[str, NodeForecast] = {}
    after: dict[str, NodeForecast] = {}
    estimated_seconds: float | None = None
    estimated_bytes: int | None = None
    owner: str = ""
    approvals: list[Any] = []
    law: str | None = None
    entry: int | None = None
    undoes: int | None = None
    created_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    can_approve: bool = False
    can_stop: bool = False
    can_roll_back: bool = False
