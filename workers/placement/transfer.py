"""Waiting blocks from one node to others: each arrives once, over any crash of anybody.

`depart` on the source marks a block with its one target, `receive` on the target takes it unless it was
taken, `confirm` on the source removes it (docs/understand/how/placement.md). Each step may be repeated at any
time, by anybody: a pass that died is finished by the next, and two passes at once do the work of one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from queues.errors import NodeFull, NodeUnavailable
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import Departing, Segment

CHUNK_BLOCKS = 64
CHUNK_LETTERS = 64


@dataclass(frozen=True)
class Transferred:
    """What a pass has moved; `last_error` says why not more, where a target did not take what it should."""

    blocks: int = 0
    events: int = 0
    bytes: int = 0
    by_target: Mapping[str, int] = field(default_factory=dict)
    last_error: str | None = None


@dataclass(frozen=True)
class Route:
    """From a queue's segment on `node` to its segments on other nodes, by weight (0: only what is marked)."""

    node: str
    source: Segment
    targets: Mapping[str, Segment]
    weights: Mapping[str, int]

    def run(self, budget_bytes: int) -> Transferred:
        """Transfer blocks until about `budget_bytes` are moved or none is left that nobody works at.

        A target that does not answer or is full is left out for the rest of the pass; its blocks stay marked.
        Raises `NodeUnavailable` when the source does not answer.
        """
        done = Transferred()
        weights = dict(self.weights)
        while done.bytes < budget_bytes and weights:
            rows = self.source.depart(weights, CHUNK_BLOCKS, budget_bytes - done.bytes)
            if not rows:
                break
            arrived, failed = self._deliver(rows)
            self.source.confirm([block.entry_id for block in arrived])
            done = _add(done, arrived, next(iter(failed.values()), done.last_error))
            for target in failed:
                weights.pop(target)
        return done

    def letters(self) -> int:
        """Move dead letters to the target of the greatest weight; answers how many."""
        target = max(self.weights, key=lambda node: (self.weights[node], node), default=None)
        if target is None or not self.weights[target]:
            return 0
        moved = 0
        source, receiver = DeadLetters(self.source), DeadLetters(self.targets[target])
        while rows := source.stored(CHUNK_LETTERS):
            for dead_id, content in rows:
                receiver.receive(self.node, dead_id, content)
            moved += source.forget([dead_id for dead_id, _ in rows])
        return moved

    def _deliver(self, rows: Sequence[Departing]) -> tuple[list[Departing], dict[str, str]]:
        """What arrived (now or before), and the targets that failed with their error."""
        arrived: list[Departing] = []
        failed: dict[str, str] = {}
        for block in rows:
            if block.target in failed:
                continue
            try:
                self.targets[block.target].receive(self.node, block)
            except (NodeUnavailable, NodeFull) as error:
                failed[block.target] = str(error)
            else:
                arrived.append(block)
        return arrived, failed


def _add(done: Transferred, arrived: Sequence[Departing], last_error: str | None) -> Transferred:
    by_target = dict(done.by_target)
    for block in arrived:
        by_target[block.target] = by_target.get(block.target, 0) + 1
    return Transferred(
        done.blocks + len(arrived),
        done.events + sum(block.events for block in arrived),
        done.bytes + sum(len(block.data) for block in arrived),
        by_target,
        last_error,
    )
