"""Plans that move points: the open ones in the snapshot, and whole plans."""

from typing import Annotated

from msgspec import field

from common.stored_document import Bytes, Events, Instant, Points, Seconds, Share, StoredDocument, describe
from workers.documents.nodes import NodeState

PlanKind = Annotated[
    str, describe(values=("rebalance", "band", "drain", "release", "use", "restore", "hand", "roll-back"))
]
PlanState = Annotated[
    str,
    describe(
        values=("proposed", "approved", "running", "done", "stopped", "failed", "rejected", "void", "rolled-back")
    ),
]


class PlanMove(StoredDocument, frozen=True, kw_only=True):
    """A move of a queue's points from one node to another, and its progress."""

    queue: str
    source: Annotated[str, describe("The node that loses points.")] = field(name="from")
    target: Annotated[str, describe("The node that gains points.")] = field(name="to")
    points: Points
    state: Annotated[str, describe(values=("pending", "moved", "transferring", "done"))] = "pending"
    points_moved: Points = 0
    blocks: Annotated[int, describe("Number of transferred blocks.")] = 0
    blocks_total: int | None = 0
    events: Events = 0
    bytes: Bytes = 0


class PlanStatus(StoredDocument, frozen=True, kw_only=True):
    """An open plan."""

    id: int
    state: PlanState
    hash: Annotated[str, describe("64 hexadecimal digits. Send the hash to approve the plan.")] = ""
    kind: PlanKind = ""
    title: str = ""
    points: Points = 0
    progress_share: Share = 0.0
    note: Annotated[str, describe("Why the plan is waiting, or why it ended.")] = ""
    empties: Annotated[str | None, describe("The node that the plan empties; null: none.")] = None
    expires_at: Instant | None = None
    moves: list[PlanMove] = []


class NodeForecast(StoredDocument, frozen=True, kw_only=True, gc=False):
    """A node before or after a plan."""

    utilisation: Share | None = None
    state: NodeState | None = None
    points: Points = 0


class PlanApproval(StoredDocument, frozen=True, kw_only=True):
    """A person's approval of a plan."""

    by: str
    reason: str
    at: Instant


class PlanDocument(PlanStatus, frozen=True, kw_only=True):
    """A plan with its effect on the nodes."""

    short_hash: str = ""
    reason: str = ""
    before: Annotated[dict[str, NodeForecast], describe("Keyed by node.")] = {}
    after: Annotated[dict[str, NodeForecast], describe("Keyed by node.")] = {}
    estimated_seconds: Seconds | None = None
    estimated_bytes: Bytes | None = None
    owner: Annotated[str, describe('A person, a law, or "recovery".')] = ""
    approvals: list[PlanApproval] = []
    law: str | None = None
    entry: Annotated[int | None, describe("The ledger entry that proposed it.")] = None
    undoes: Annotated[int | None, describe("The plan that it rolls back.")] = None
    created_at: Instant | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    can_approve: bool = False
    can_stop: bool = False
    can_roll_back: bool = False
