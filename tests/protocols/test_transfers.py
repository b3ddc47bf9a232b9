"""Blocks on their way between nodes: two passes at once that stop between any two steps, workers beside them,
targets that are full, nodes that are killed. Each event stays in one place, and arrives once.
"""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common.errors import NodeFull
from queues import keys
from queues.events.block import decode
from queues.segments.dead_letters import MOVING, DeadLetters
from queues.segments.segment import ClaimedBlock, DepartingBlock, Segment
from tests.protocols.exploring import DEPTHS, LONG, SECONDS, age_segment, explore
from tests.queues.samples import blocks_of
from tests.servers import Server
from workers.placement.transfer import Route

NAMES = ("n1", "n2", "n3")
NODE = st.sampled_from(NAMES)
PLACE = st.integers(0, 2)
BLOCK = 2  # events
ALL = 10**9
FULL = 1  # bytes


@dataclass
class Pass:
    """A pass that stands between two of its steps: what it was given, and what of that has arrived."""

    source: str
    given: list[DepartingBlock]
    arrived: list[DepartingBlock] = field(default_factory=list)


class Transfers(RuleBasedStateMachine):
    """One queue on three nodes, a worker on each, and two passes at a time."""

    def __init__(self, servers: dict[str, Server], most_kills: int) -> None:
        super().__init__()
        self.servers, self.kills_left = servers, most_kills
        self.at = {name: Segment(servers[name].client(), "alert") for name in NAMES}
        for name in NAMES:
            self.at[name].node.flushall()
            self.resize(name, servers[name].config.maxmemory_bytes)
        self.published = 0
        self.handled: Counter[str] = Counter()
        self.hands: dict[str, list[ClaimedBlock]] = {name: [] for name in NAMES}
        self.passes: list[Pass] = []

    def teardown(self) -> None:
        """Whatever happened: passes go on to their end, and workers handle the rest; each event once."""
        for name in NAMES:
            self.resize(name, self.servers[name].config.maxmemory_bytes)
        for name in NAMES:
            assert self.route(name, dict.fromkeys(NAMES, 0)).run(ALL).last_error is None
        for segment in self.at.values():
            age_segment(segment.node, "alert", 60)
            for block in segment.claim("last", ALL, 15.0):
                assert segment.acknowledge([block.entry_id]).blocks == 1
                self.handled.update(block.block().get_event_ids().to_pylist())
        assert self.handled == Counter(self.events())

    def events(self) -> list[str]:
        return [f"e{row}" for row in range(self.published)]

    def resize(self, name: str, size_bytes: int) -> None:
        self.at[name].node.config_set("maxmemory", size_bytes)

    def route(self, source: str, weights: dict[str, int]) -> Route:
        targets = {name: self.at[name] for name in NAMES if name != source}
        return Route(source, self.at[source], targets, {name: weights[name] for name in targets})

    def copies(self, name: str) -> Counter[str]:
        """The events of a node that are not on another one already: received there, not confirmed here."""
        marked = {key.decode(): value.decode() for key, value in
                  self.at[name].node.hgetall(keys.LEAVING.build("alert")).items()}  # fmt: skip
        found: Counter[str] = Counter()
        for entry_id, block_id, data, _ in self.at[name].read("0-0", "+"):
            target = marked.get(entry_id)
            passage = f"{name}/{entry_id}/{block_id}"
            received = keys.RECEIVED.build("alert")
            if target is None or self.at[target].node.zscore(received, passage) is None:
                found.update(decode(block_id, data).get_event_ids().to_pylist())
        return found

    @rule(node=NODE, blocks=st.integers(1, 3))
    def events_are_published(self, node: str, blocks: int) -> None:
        if self.at[node].node.config_get("maxmemory")["maxmemory"] != str(FULL):
            self.at[node].publish(blocks_of(BLOCK * blocks, BLOCK, self.published))
            self.published += BLOCK * blocks

    @rule(node=NODE, limit=st.integers(1, 6))
    def a_worker_claims(self, node: str, limit: int) -> None:
        marked = set(self.at[node].node.hkeys(keys.LEAVING.build("alert")))
        claimed = self.at[node].claim("w1", limit, 15.0)
        assert not {block.entry_id.encode() for block in claimed} & marked, "what leaves is given to nobody"
        self.hands[node] += claimed

    @rule(node=NODE, place=PLACE)
    def a_block_is_handled(self, node: str, place: int) -> None:
        if hand := self.hands[node]:
            block = hand.pop(place % len(hand))
            removed = self.at[node].acknowledge([block.entry_id])
            if removed.blocks:
                self.handled.update(block.block().get_event_ids().to_pylist())

    @rule(node=NODE)
    def a_worker_dies(self, node: str) -> None:
        self.hands[node].clear()

    @precondition(lambda self: len(self.passes) < 2)
    @rule(source=NODE, first=st.integers(0, 3), second=st.integers(0, 3), blocks=st.integers(1, 4))
    def a_pass_begins(self, source: str, first: int, second: int, blocks: int) -> None:
        targets = [name for name in NAMES if name != source]
        given = self.at[source].depart(dict(zip(targets, (first, second), strict=True)), blocks, ALL)
        assert source not in {block.target for block in given}
        self.passes.append(Pass(source, given))

    @precondition(lambda self: self.passes)
    @rule(place=PLACE, answer_is_lost=st.booleans())
    def a_block_arrives(self, place: int, answer_is_lost: bool) -> None:
        going = self.passes[place % len(self.passes)]
        if going.given:
            block = going.given.pop(0)
            try:
                self.at[block.target].receive(going.source, block)
            except NodeFull:
                return
            assert not (answer_is_lost and self.at[block.target].receive(going.source, block))
            going.arrived.append(block)

    @precondition(lambda self: self.passes)
    @rule(place=PLACE, answer_is_lost=st.booleans())
    def a_pass_confirms_and_ends(self, place: int, answer_is_lost: bool) -> None:
        going = self.passes.pop(place % len(self.passes))
        entries = [block.entry_id for block in going.arrived]
        self.at[going.source].confirm(entries)
        if answer_is_lost:
            assert self.at[going.source].confirm(entries).blocks == 0

    @precondition(lambda self: self.passes)
    @rule(place=PLACE)
    def a_pass_dies(self, place: int) -> None:
        self.passes.pop(place % len(self.passes))

    @rule(source=NODE, first=st.integers(0, 3), second=st.integers(0, 3), blocks=st.integers(1, 3))
    def a_whole_pass_runs(self, source: str, first: int, second: int, blocks: int) -> None:
        targets = [name for name in NAMES if name != source]
        done = self.route(source, dict(zip(targets, (first, second), strict=True))).run(blocks * 700)
        assert sum(done.by_target.values()) == done.blocks

    @rule(node=NODE, is_full=st.booleans())
    def a_node_is_full_or_has_room_again(self, node: str, is_full: bool) -> None:
        self.resize(node, FULL if is_full else self.servers[node].config.maxmemory_bytes)

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: int) -> None:
        for segment in self.at.values():
            age_segment(segment.node, "alert", seconds)

    @precondition(lambda self: self.kills_left > 0)
    @rule(node=NODE)
    def a_node_is_killed_and_started_again(self, node: str) -> None:
        self.kills_left -= 1
        self.servers[node].kill()
        self.servers[node].start()

    @invariant()
    def every_event_is_in_one_place(self) -> None:
        everywhere = self.handled.copy()
        for name in NAMES:
            everywhere += self.copies(name)
        assert everywhere == Counter(self.events())

    @invariant()
    def every_node_counts_what_it_has(self) -> None:
        for segment in self.at.values():
            counters = segment.get_counters()
            blocks = segment.measure()["length_blocks"]
            assert counters["inserted_events"] - counters["removed_events"] == BLOCK * blocks


class Letters(RuleBasedStateMachine):
    """Dead letters that move by passes that die anywhere, and that people requeue and discard meanwhile."""

    def __init__(self, servers: dict[str, Server]) -> None:
        super().__init__()
        self.at = {name: Segment(servers[name].client(), "alert") for name in NAMES}
        for segment in self.at.values():
            segment.node.flushall()
        self.made = self.settled = 0  # events: made, and no longer dead

    @rule(node=NODE)
    def a_block_is_given_up(self, node: str) -> None:
        segment = self.at[node]
        segment.publish(blocks_of(BLOCK, BLOCK, self.made))
        (block,) = segment.claim("w1", BLOCK, 15.0)
        segment.move_to_dead_letters(block, "w1", [(block.block().build_explicit_batch(), "bad")])
        self.made += BLOCK

    @rule(source=NODE, steps=st.integers(1, 2), most=st.integers(1, 2), received=st.integers(0, 2))
    def a_pass_dies_on_its_way(self, source: str, steps: int, most: int, received: int) -> None:
        targets = self.list_targets(source, steps)
        letters = DeadLetters(self.at[source]).depart(targets[0], targets, most, 10**9)
        for letter in letters[:received]:
            DeadLetters(self.at[letter.target]).receive(source, letter)

    @rule(source=NODE, steps=st.integers(1, 2))
    def a_pass_runs(self, source: str, steps: int) -> None:
        targets = self.list_targets(source, steps)
        weights = dict(zip(targets, (2, 1), strict=True))
        Route(source, self.at[source], {name: self.at[name] for name in targets}, weights).move_letters(10**9)
        assert DeadLetters(self.at[source]).read() == []

    def list_targets(self, source: str, steps: int) -> list[str]:
        return [NAMES[(NAMES.index(source) + step) % 3] for step in (steps, 3 - steps)]

    @rule(node=NODE, action=st.sampled_from(["requeue", "discard"]))
    def a_person_settles_the_letters_of_a_node(self, node: str, action: str) -> None:
        letters = DeadLetters(self.at[node])
        shown = {letter.dead_id: letter.digest for letter in letters.read(1_000)}
        answers = getattr(letters, action)(shown).values()
        assert all(answer > 0 or answer == MOVING for answer in answers)
        self.settled += sum(answer for answer in answers if answer > 0)

    @invariant()
    def every_event_is_settled_once_or_in_one_letter_that_can_be_settled(self) -> None:
        letters = 0
        for segment in self.at.values():
            moving = segment.node.hkeys(keys.LEAVING_LETTERS.build("alert"))
            own = [each for each in DeadLetters(segment).read(1_000) if each.dead_id.encode() not in moving]
            letters += sum(each.events for each in own)
        assert letters + self.count_on_the_way() == self.made - self.settled

    def count_on_the_way(self) -> int:
        """Return the events of marked letters that their target doesn't have yet, and never had."""
        events = 0
        for source, segment in self.at.items():
            for dead_id, target in segment.node.hgetall(keys.LEAVING_LETTERS.build("alert")).items():
                letter = DeadLetters(segment).find(dead_id.decode())
                passage = f"{source}/dead/{dead_id.decode()}"
                is_received = self.at[target.decode()].node.zscore(keys.RECEIVED.build("alert"), passage) is not None
                events += letter.events if letter is not None and not is_received else 0
        return events


@pytest.mark.faults
@pytest.mark.parametrize("depth", DEPTHS)
def test_a_transfer_that_stops_anywhere_leaves_each_event_in_one_place(nodes, depth):
    kills = 1 if depth == LONG else 0
    explore(lambda: Transfers(nodes, kills), depth)


@pytest.mark.parametrize("depth", DEPTHS)
def test_dead_letters_that_move_are_on_one_node(nodes, depth):
    explore(lambda: Letters(nodes), depth)
