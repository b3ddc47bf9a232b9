"""The event time up to which all producers have published, without a wait for late events. Pure arithmetic.

A producer that publishes in order (`queues.publishing.producer_order`) has no event before the newest time of a call
once all blocks up to the end of this call are dispatched. If an application declares all producers of its queues, and
each of them publishes in order, the progress of the slowest producer is *settled*: no earlier event can follow.
Otherwise, event time waits for the lateness. It also waits in these cases:

- A block is missing: it is in transfer, or its container can't be read.
- A producer is silent for longer than the lateness.
- A block belongs to no declared producer. For UNORDERED_SECONDS, the order of producers is then ignored.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from common.stored_document import StoredDocument, replace_fields
from queues.publishing.producer_order import OrderMark

UNORDERED_SECONDS = 60.0
MAX_AHEAD = 1_000  # blocks of a session that are dispatched before a missing block


class OrderedBlock(NamedTuple):
    """A dispatched block. position: in its session. is_last: whether it is the last block of its call."""

    position: int
    newest_us: int
    is_last: bool


class SessionProgress(StoredDocument, frozen=True):
    """The progress of a session.

    session: name of the session. next: position of the first block that was not dispatched. newest_us: newest time of
    the blocks before it. settled_us: newest time of the last complete call. ahead: blocks after `next`, by position.
    trusted_us: the order counts from this event time on. Blocks of an earlier session, and missing blocks, are late by
    then (None: no block was dispatched).
    """

    session: str
    next: int = 0
    newest_us: int = 0
    settled_us: int | None = None
    ahead: tuple[OrderedBlock, ...] = ()
    trusted_us: int | None = None

    def add(self, blocks: Iterable[OrderedBlock], lateness_us: int) -> "SessionProgress":
        """Return the progress after these blocks."""
        ahead = sorted({*self.ahead, *(block for block in blocks if block.position >= self.next)})
        trusted_us = self.trusted_us
        if ahead and trusted_us is None:
            trusted_us = max(block.newest_us for block in ahead) + lateness_us
        position, newest_us, settled_us, passed = self.next, self.newest_us, self.settled_us, 0
        for block in ahead:
            if block.position > position:
                break
            passed, position, newest_us = passed + 1, block.position + 1, max(newest_us, block.newest_us)
            settled_us = newest_us if block.is_last else settled_us
        added = SessionProgress(self.session, position, newest_us, settled_us, tuple(ahead[passed:]), trusted_us)
        return added if len(added.ahead) <= MAX_AHEAD else added._continue_ahead(lateness_us)

    def skip_missing(self, watermark_us: int, lateness_us: int) -> "SessionProgress":
        """Return the progress without missing blocks that are late in any case."""
        if not self.ahead or self.ahead[0].newest_us > watermark_us:
            return self
        return self._continue_ahead(lateness_us)

    def _continue_ahead(self, lateness_us: int) -> "SessionProgress":
        """Return the progress from the first block ahead. Missing blocks may be as new as the newest block ahead."""
        newest_us = max(block.newest_us for block in self.ahead)
        trusted_us = max(self.trusted_us or 0, newest_us + lateness_us)
        return replace_fields(self, next=self.ahead[0].position, trusted_us=trusted_us).add((), lateness_us)


class ProducerProgress(StoredDocument, frozen=True):
    """The progress of all producers. sessions: (`queue/producer`) → progress. unordered_until_us: clock time."""

    sessions: Mapping[str, SessionProgress] = {}
    unordered_until_us: int = 0

    def knows(self, queue: str, block_ids: Iterable[str]) -> bool:
        """Return whether each block belongs to a known session of the queue."""
        known = {own.session for name, own in self.sessions.items() if name.partition("/")[0] == queue}
        return all((mark := OrderMark.parse(block_id)) is not None and mark.session in known for block_id in block_ids)

    def register(self, declared: Mapping[str, tuple[str, ...]], newest: Mapping[str, str]) -> "ProducerProgress":
        """Return the progress with the newest sessions. declared: queue → producers. newest: name → session."""
        names = [f"{queue}/{producer}" for queue, producers in declared.items() for producer in producers]
        sessions = {name: own for name, own in self.sessions.items() if name in names}
        for name in names:
            if name in newest and (name not in sessions or sessions[name].session != newest[name]):
                sessions[name] = SessionProgress(newest[name])
        return replace_fields(self, sessions=sessions)

    def add(self, queue: str, blocks: Iterable[tuple[str, int]], now_us: int, lateness_us: int) -> "ProducerProgress":
        """Return the progress after the dispatched blocks (ID, newest event time) of a queue."""
        names = {own.session: name for name, own in self.sessions.items() if name.partition("/")[0] == queue}
        by_name: dict[str, list[OrderedBlock]] = {}
        unordered_until_us = self.unordered_until_us
        for block_id, newest_us in blocks:
            mark = OrderMark.parse(block_id)
            if mark is None or mark.session not in names:
                unordered_until_us = now_us + round(UNORDERED_SECONDS * 1_000_000)
                continue
            # An event time in the future counts as now, as in the cursor.
            block = OrderedBlock(mark.position, min(now_us, newest_us), mark.is_last)
            by_name.setdefault(names[mark.session], []).append(block)
        added = {name: self.sessions[name].add(own, lateness_us) for name, own in by_name.items()}
        return replace_fields(self, sessions={**self.sessions, **added}, unordered_until_us=unordered_until_us)

    def compute_settled_us(self, declared: Mapping[str, tuple[str, ...]], now_us: int) -> int | None:
        """Return the event time up to which every declared producer has published; None if it is unknown."""
        names = [f"{queue}/{producer}" for queue, producers in declared.items() for producer in producers]
        if not names or now_us < self.unordered_until_us:
            return None
        settled: list[int] = []
        for name in names:
            own = self.sessions.get(name)
            if own is None or own.settled_us is None or own.trusted_us is None or own.settled_us < own.trusted_us:
                return None
            settled.append(own.settled_us)
        return min(settled)

    def skip_missing(self, watermark_us: int | None, lateness_us: int) -> "ProducerProgress":
        """Return the progress without missing blocks whose events are late in any case."""
        if watermark_us is None or not any(own.ahead for own in self.sessions.values()):
            return self
        sessions = {name: own.skip_missing(watermark_us, lateness_us) for name, own in self.sessions.items()}
        return replace_fields(self, sessions=sessions)
