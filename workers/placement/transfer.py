"""Transfer of waiting blocks from one node to others: each arrives once, through any crash of any process.

`depart` on the source marks a block with its one target, `receive` on the target takes it unless it was taken,
`confirm` on the source removes it (docs/understand/how/placement.md). Each step may be repeated at any time, by any
process: the next pass finishes one that died, and two passes at once do the work of one. Dead letters move in the same
three steps.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from common.errors import NodeFull, NodeUnavailable
from queues.segments.dead_letters import DeadLetters, DepartingLetter
from queues.segments.segment import DepartingBlock, Segment

CHUNK_BLOCKS = 64
CHUNK_LETTERS = 64
FINDER = "transfer"  # the finder of damaged blocks
# Each is a round trip, however small it is: a pass must end long before the lease of its plan.
MAX_MOVED = 4_000
# The same applies if a round trip is long: other due work of the process waits meanwhile.
PASS_SECONDS = 3.0


@dataclass(frozen=True)
class Deadline:
    """The time at which a pass ends, in seconds of a monotonic clock.

    What has not arrived by then is left to the next pass.
    """

    at_seconds: float
    monotonic: Callable[[], float] = time.monotonic

    @classmethod
    def start(cls, seconds: float, monotonic: Callable[[], float]) -> Self:
        return cls(monotonic() + seconds, monotonic)

    @property
    def is_over(self) -> bool:
        return self.monotonic() >= self.at_seconds


NEVER = Deadline(math.inf)


@dataclass(frozen=True)
class TransferResult:
    """The data that a pass has moved; `last_error` says why not more, if a target did not take what it should."""

    blocks: int = 0
    events: int = 0
    bytes: int = 0
    letters: int = 0
    by_target: Mapping[str, int] = field(default_factory=dict)
    last_error: str | None = None

    def add_letters(self, moved: "TransferResult") -> "TransferResult":
        """Return the dead letters that were moved behind these blocks, too."""
        return replace(self, letters=moved.letters, bytes=self.bytes + moved.bytes, last_error=moved.last_error)


@dataclass(frozen=True)
class Route:
    """A route from a queue's segment on `node` to its segments on other nodes, by weight.

    Weight 0 means that only marked blocks are transferred.
    """

    node: str
    source: Segment
    targets: Mapping[str, Segment]
    weights: Mapping[str, int]

    def run(self, budget_bytes: int, most: int = MAX_MOVED, deadline: Deadline = NEVER) -> TransferResult:
        """Transfer blocks until a limit is reached, no unclaimed block is left, or the deadline is over.

        The limits are about `budget_bytes`, and `most`. After the deadline, too, one block is moved, so that every pass
        makes progress. A target that does not answer or is full is skipped for the rest of the pass; its blocks stay
        marked. A damaged block becomes a dead letter of the source. Raises `NodeUnavailable` if the source does not
        answer.
        """
        done = TransferResult()
        weights = dict(self.weights)
        while weights and done.bytes < budget_bytes and done.blocks < most:
            chunk = min(CHUNK_BLOCKS, most - done.blocks)
            rows = self.source.depart(weights, chunk, budget_bytes - done.bytes)
            if not rows:
                break
            arrived, failed = self._deliver(rows, deadline)
            self.source.confirm([block.entry_id for block in arrived])
            done = _add(done, arrived, next(iter(failed.values()), done.last_error))
            for target in failed:
                weights.pop(target)
            if done.blocks and deadline.is_over:
                break
        return done

    def move_letters(self, budget_bytes: int, most: int = MAX_MOVED, deadline: Deadline = NEVER) -> TransferResult:
        """Move dead letters to the target of the greatest weight that answers and has room.

        The limits and the deadline are those of `run`. A letter that is marked for a target goes to no other, since
        the target may have taken it without an answer.
        """
        done, source = TransferResult(), DeadLetters(self.source)
        weights = dict(self.weights)
        while weights and done.bytes < budget_bytes and done.letters < most:
            # One letter shows whether the target takes letters: more would be marked for it in vain.
            chunk = min(CHUNK_LETTERS, most - done.letters) if done.letters else 1
            rows = source.depart(_choose_heaviest(weights), weights, chunk, budget_bytes - done.bytes)
            if not rows:
                break
            arrived, failed = self._post(rows, deadline)
            source.confirm([letter.dead_id for letter in arrived])
            done = replace(
                done,
                letters=done.letters + len(arrived),
                bytes=done.bytes + sum(len(part) for letter in arrived for part in letter.content),
                last_error=next(iter(failed.values()), done.last_error),
            )
            for target in failed:
                weights.pop(target)
            if done.letters and deadline.is_over:
                break
        return done

    def _post(
        self, rows: Sequence[DepartingLetter], deadline: Deadline
    ) -> tuple[list[DepartingLetter], dict[str, str]]:
        """Return what arrived (now or before), and the targets that failed with their error."""
        arrived: list[DepartingLetter] = []
        failed: dict[str, str] = {}
        for letter in rows:
            if arrived and deadline.is_over:
                break
            if letter.target in failed:
                continue
            try:
                DeadLetters(self.targets[letter.target]).receive(self.node, letter)
            except (NodeUnavailable, NodeFull) as error:
                failed[letter.target] = str(error)
            else:
                arrived.append(letter)
        return arrived, failed

    def _deliver(
        self, rows: Sequence[DepartingBlock], deadline: Deadline
    ) -> tuple[list[DepartingBlock], dict[str, str]]:
        """Return what arrived (now or before), and the targets that failed with their error."""
        arrived: list[DepartingBlock] = []
        failed: dict[str, str] = {}
        for block in rows:
            if arrived and deadline.is_over:
                break
            if block.target in failed:
                continue
            if block.damage is not None:
                self.source.quarantine(block.entry_id, block.damage, FINDER)
                continue
            try:
                self.targets[block.target].receive(self.node, block)
            except (NodeUnavailable, NodeFull) as error:
                failed[block.target] = str(error)
            else:
                arrived.append(block)
        return arrived, failed


def _choose_heaviest(weights: Mapping[str, int]) -> str | None:
    """Return the node of the greatest weight; None if all weights are 0."""
    node = min(weights, key=lambda name: (-weights[name], name))
    return node if weights[node] else None


def _add(done: TransferResult, arrived: Sequence[DepartingBlock], last_error: str | None) -> TransferResult:
    by_target = dict(done.by_target)
    for block in arrived:
        by_target[block.target] = by_target.get(block.target, 0) + 1
    return replace(
        done,
        blocks=done.blocks + len(arrived),
        events=done.events + sum(block.events for block in arrived),
        bytes=done.bytes + sum(len(block.data) for block in arrived),
        by_target=by_target,
        last_error=last_error,
    )
