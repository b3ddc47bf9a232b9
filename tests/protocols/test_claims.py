"""A segment's workers: blocks claimed, kept alive, put off, given up, acknowledged, put in again; workers
that die, are overtaken and come back, answers that are lost, and a server that is killed.
"""

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import ClaimedBlock, Removal, Segment
from tests.protocols.exploring import DEPTHS, LONG, SECONDS, age_segment, explore
from tests.queues.samples import blocks_of
from tests.servers import Server

IDLE_SECONDS = 15
BLOCK = 2  # events
NAMES = ("w1", "w2")
WORKER = st.sampled_from(NAMES)
PLACE = st.integers(0, 2)


@dataclass
class Waiting:
    """A block of the segment, by the model. holder: None while it is new, "" while it waits for its retry."""

    events: frozenset[str]
    holder: str | None = None
    idle_seconds: int = 0
    due_seconds: int = 0
    tries: int = 0

    def is_free(self) -> bool:
        """Whether a worker may be given it."""
        if self.holder is None:
            return True
        return self.due_seconds <= 0 if self.holder == "" else self.idle_seconds >= IDLE_SECONDS


@dataclass
class InHand:
    """What a worker believes to hold, and whether it has handled it."""

    block: ClaimedBlock
    handled: bool = False

    @property
    def events(self) -> frozenset[str]:
        return frozenset(self.block.block().get_event_ids().to_pylist())


class Claims(RuleBasedStateMachine):
    """One segment, two workers, and a set in place of the effects of a handler."""

    def __init__(self, server: Server, most_kills: int) -> None:
        super().__init__()
        self.server, self.kills_left = server, most_kills
        self.segment = Segment(server.client(), "alert")
        self.segment.node.flushall()
        self.waiting: dict[str, Waiting] = {}
        self.hands: dict[str, list[InHand]] = {name: [] for name in NAMES}
        self.published: set[str] = set()
        self.effects: set[str] = set()
        self.dead: dict[str, frozenset[str]] = {}
        self.discarded: set[str] = set()

    def letters(self) -> DeadLetters:
        return DeadLetters(self.segment)

    def in_hand(self, worker: str, place: int) -> InHand | None:
        """One of a worker's blocks."""
        hand = self.hands[worker]
        return hand[place % len(hand)] if hand else None

    def is_held_by(self, worker: str, block: ClaimedBlock) -> bool:
        there = self.waiting.get(block.entry_id)
        return there is not None and there.holder == worker

    def appeared(self, entries: set[str]) -> None:
        """What is in the stream and not in the model has just been put there."""
        for entry_id, events in self.stored().items():
            if entry_id in entries:
                self.waiting[entry_id] = Waiting(events)

    def stored(self) -> dict[str, frozenset[str]]:
        """Entry id → event ids, as the server has them."""
        found = self.segment.read("0-0", "+")
        return {entry: frozenset(ClaimedBlock(entry, block, 0, 0, 0, data, 0.0).block().get_event_ids().to_pylist())
                for entry, block, data, _ in found}  # fmt: skip

    @rule(blocks=st.integers(1, 3))
    def events_are_published(self, blocks: int) -> None:
        first = len(self.published)
        made = blocks_of(BLOCK * blocks, BLOCK, first)
        self.segment.publish(made)
        self.published |= {f"e{row}" for row in range(first, first + BLOCK * blocks)}
        self.appeared(self.stored().keys() - self.waiting.keys())

    @rule(worker=WORKER, limit=st.integers(1, 6))
    def a_worker_claims(self, worker: str, limit: int) -> None:
        claimed = self.segment.claim(worker, limit, IDLE_SECONDS)
        assert claimed or not any(each.is_free() for each in self.waiting.values())
        assert sum(each.events for each in claimed) < limit + BLOCK
        for block in claimed:
            there = self.waiting[block.entry_id]
            assert there.is_free(), "nobody is given what another holds"
            assert block.tries == there.tries + 1
            there.holder, there.idle_seconds, there.tries = worker, 0, block.tries
            self.hands[worker].append(InHand(block))

    @rule(worker=WORKER, place=PLACE)
    def a_block_is_handled(self, worker: str, place: int) -> None:
        if (held := self.in_hand(worker, place)) is not None:
            held.handled = True
            self.effects |= held.events

    @rule(worker=WORKER, place=PLACE, answer_is_lost=st.booleans())
    def a_handled_block_is_acknowledged(self, worker: str, place: int, answer_is_lost: bool) -> None:
        """By whoever has handled it, also late: its effect is there, and counts once."""
        held = self.in_hand(worker, place)
        if held is None or not held.handled:
            return
        for _ in range(1 + answer_is_lost):
            there = self.waiting.pop(held.block.entry_id, None)
            expected = Removal(len(there.events), 1) if there else Removal(0, 0)
            assert self.segment.acknowledge([held.block.entry_id]) == expected
        self.hands[worker].remove(held)

    @rule(worker=WORKER, place=PLACE, delay=SECONDS, untried=st.booleans(), answer_is_lost=st.booleans())
    def a_block_is_put_off(self, worker: str, place: int, delay: int, untried: bool, answer_is_lost: bool) -> None:
        if (held := self.in_hand(worker, place)) is None:
            return
        for _ in range(1 + answer_is_lost):
            ours = self.is_held_by(worker, held.block)
            assert self.segment.retry(held.block, worker, delay, untried=untried) == ours
            if ours:
                there = self.waiting[held.block.entry_id]
                there.tries -= untried
                there.holder, there.due_seconds, there.idle_seconds = "", delay, 0
        self.hands[worker].remove(held)

    @rule(worker=WORKER, place=PLACE, answer_is_lost=st.booleans())
    def a_block_is_given_up(self, worker: str, place: int, answer_is_lost: bool) -> None:
        """Its last row is poison, the others are handled."""
        if (held := self.in_hand(worker, place)) is None:
            return
        rows = held.block.block().build_explicit_batch()
        poison = rows.slice(rows.num_rows - 1)
        self.effects |= held.events - set(poison.column(0).to_pylist())
        for _ in range(1 + answer_is_lost):
            ours = self.is_held_by(worker, held.block)
            removed = self.segment.move_to_dead_letters(held.block, worker, [(poison, "bad")])
            # A block of what was put in again is of a single event.
            assert removed == (Removal(len(held.events), 1) if ours else Removal(0, 0))
            if ours:
                del self.waiting[held.block.entry_id]
                self.note_letters()
        self.hands[worker].remove(held)

    @rule(worker=WORKER)
    def a_worker_keeps_its_blocks_alive(self, worker: str) -> None:
        entries = [held.block.entry_id for held in self.hands[worker]]
        still = {held.block.entry_id for held in self.hands[worker] if self.is_held_by(worker, held.block)}
        assert set(self.segment.keep_alive(worker, entries)) == still
        for entry_id in still:
            self.waiting[entry_id].idle_seconds = 0

    @rule(worker=WORKER)
    def a_worker_dies(self, worker: str) -> None:
        self.hands[worker].clear()

    @rule(place=PLACE, answer_is_lost=st.booleans())
    def a_dead_letter_is_put_in_again(self, place: int, answer_is_lost: bool) -> None:
        letters = self.letters().read()
        if letters:
            letter = letters[place % len(letters)]
            events = self.dead.pop(letter.dead_id)
            known = self.waiting.keys()
            for moved in (len(events), 0)[: 1 + answer_is_lost]:
                assert self.letters().requeue({letter.dead_id: letter.digest}) == {letter.dead_id: moved}
            self.appeared(self.stored().keys() - known)

    @rule(place=PLACE)
    def a_dead_letter_is_discarded(self, place: int) -> None:
        letters = self.letters().read()
        if letters:
            letter = letters[place % len(letters)]
            self.discarded |= self.dead.pop(letter.dead_id)
            assert self.letters().discard({letter.dead_id: letter.digest}) == {letter.dead_id: letter.events}

    def note_letters(self) -> None:
        self.dead = {each.dead_id: frozenset(each.batch.column(0).to_pylist()) for each in self.letters().read()}

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: int) -> None:
        age_segment(self.segment.node, "alert", seconds)
        for each in self.waiting.values():
            each.idle_seconds += seconds
            each.due_seconds -= seconds

    @rule(worker=WORKER)
    def a_worker_is_overtaken(self, worker: str) -> None:
        """What random steps come to too seldom: it is paused, and another has its blocks when it goes on."""
        self.a_worker_claims(worker, 6)
        self.time_passes(IDLE_SECONDS + 1)
        self.a_worker_claims(NAMES[1 - NAMES.index(worker)], 6)

    @rule()
    def ended_workers_are_forgotten(self) -> None:
        self.segment.sweep(0.0)

    @precondition(lambda self: self.kills_left > 0)
    @rule()
    def the_server_is_killed_and_started_again(self) -> None:
        self.kills_left -= 1
        self.server.kill()
        self.server.start()

    @invariant()
    def the_server_has_what_the_model_has_and_counts_it(self) -> None:
        assert self.stored() == {entry: each.events for entry, each in self.waiting.items()}
        counters = self.segment.get_counters()
        assert counters["inserted_events"] - counters["removed_events"] == sum(
            len(each.events) for each in self.waiting.values()
        )
        found = {each.dead_id: frozenset(each.batch.column(0).to_pylist()) for each in self.letters().read()}
        assert found == self.dead

    @invariant()
    def no_event_is_lost_and_none_is_in_two_places(self) -> None:
        places = [*(each.events for each in self.waiting.values()), *self.dead.values()]
        held = [event for place in places for event in place]
        assert len(held) == len(set(held))
        assert self.published - set(held) <= self.effects | self.discarded


@pytest.mark.faults
@pytest.mark.parametrize("depth", DEPTHS)
def test_every_event_is_handled_or_given_up_by_whoever_holds_it(nodes, depth):
    kills = 1 if depth == LONG else 0
    explore(lambda: Claims(nodes["n1"], kills), depth)
