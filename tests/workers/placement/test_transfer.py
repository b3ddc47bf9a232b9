"""Blocks from node to node: none lost, none doubled, whoever dies in between. On real servers."""

import pytest

from common.errors import BadInput, NodeUnavailable
from queues.events.block import decode
from queues.segments.dead_letters import MOVING, DeadLetters
from queues.segments.segment import Segment
from tests.queues.samples import batch_of, blocks_of
from workers.placement.transfer import Deadline, Route

ALL = 10**9


def segments(nodes, queue="alert"):
    return {name: Segment(server.client(), queue) for name, server in nodes.items()}


@pytest.fixture
def at(nodes):
    return segments(nodes)


def route(at, weights=None, source="n1"):
    weights = weights or {"n2": 500, "n3": 500}
    return Route(source, at[source], {name: at[name] for name in weights}, weights)


def ids(segment):
    return [
        name
        for _, block_id, data, _ in segment.read("0-0", "+")
        for name in decode(block_id, data).get_event_ids().to_pylist()
    ]


def everywhere(at):
    return sorted(name for segment in at.values() for name in ids(segment))


def waiting(segment):
    counters = segment.get_counters()
    return counters["inserted_events"] - counters["removed_events"]


def names(count):
    return sorted(f"e{row}" for row in range(count))


def test_every_waiting_block_arrives_once_and_the_source_is_empty(at):
    at["n1"].publish(blocks_of(400))
    done = route(at).run(ALL)
    assert (done.blocks, done.events, done.last_error) == (100, 400, None)
    assert everywhere(at) == names(400)
    assert ids(at["n1"]) == []
    assert waiting(at["n1"]) == 0
    assert at["n1"].measure()["leaving_blocks"] == 0
    assert waiting(at["n2"]) + waiting(at["n3"]) == 400
    assert 20 < done.by_target["n2"] < 80


class Clock:
    """A monotonic clock that goes on by what takes time."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds

    def taking(self, seconds, call):
        def slow(*arguments):
            self.seconds += seconds
            return call(*arguments)

        return slow


def test_a_pass_to_a_far_node_ends_in_time_and_the_next_goes_on(at, monkeypatch):
    at["n1"].publish(blocks_of(400))
    clock = Clock()
    monkeypatch.setattr(at["n2"], "receive", clock.taking(0.2, at["n2"].receive))
    done = route(at, {"n2": 1}).run(ALL, deadline=Deadline.start(3.0, clock))
    assert (done.blocks, clock.seconds) == (15, pytest.approx(3.0))
    assert len(ids(at["n2"])) == 60
    # What was marked and has not departed waits for the next pass, wherever that goes to.
    route(at, {"n2": 0, "n3": 1}).run(ALL)
    assert everywhere(at) == names(400)
    assert waiting(at["n1"]) == 0


def test_a_target_that_fails_for_all_of_a_pass_keeps_no_block_from_another(at, nodes, monkeypatch):
    at["n1"].publish(blocks_of(8))
    at["n1"].depart({"n2": 1}, 1, ALL)
    nodes["n2"].kill()
    clock = Clock()
    monkeypatch.setattr(at["n2"], "receive", clock.taking(5.0, at["n2"].receive))
    assert route(at).run(ALL, deadline=Deadline.start(3.0, clock)).by_target == {"n3": 1}


def test_a_dead_target_keeps_its_blocks_marked_and_the_others_arrive(at, nodes):
    at["n1"].publish(blocks_of(400))
    at["n1"].depart({"n2": 1}, 3, ALL)
    nodes["n2"].kill()
    done = route(at).run(ALL)
    assert "is not responding" in done.last_error
    nodes["n2"].start()
    route(segments(nodes)).run(ALL)
    assert everywhere(segments(nodes)) == names(400)


def test_a_full_target_takes_nothing_and_loses_nothing(at, nodes):
    at["n1"].publish(blocks_of(80))
    nodes["n2"].client().config_set("maxmemory", 1)
    done = route(at, {"n2": 1}).run(ALL)
    assert (done.blocks, "is full" in done.last_error) == (0, True)
    nodes["n2"].client().config_set("maxmemory", 2**28)
    assert route(at, {"n2": 1}).run(ALL).events == 80


def test_a_dead_source_is_an_error_and_goes_on_where_it_stopped(at, nodes):
    at["n1"].publish(blocks_of(80))
    for block in at["n1"].depart({"n2": 1}, 4, ALL):
        at["n2"].receive("n1", block)
    nodes["n1"].kill()
    with pytest.raises(NodeUnavailable):
        route(at).run(ALL)
    nodes["n1"].start()
    route(segments(nodes)).run(ALL)
    assert everywhere(segments(nodes)) == names(80)


def test_blocks_marked_for_a_node_that_is_gone_are_handled_where_they_are(at):
    at["n1"].publish(blocks_of(8))
    at["n1"].depart({"n9": 1}, 10, ALL)
    assert at["n1"].claim("w1", 100, 0.0) == []
    assert at["n1"].stay(["n9"]) == 2
    assert sum(each.events for each in at["n1"].claim("w1", 100, 0.0)) == 8


def add_letters(segment, count):
    for row in range(count):
        DeadLetters(segment).add(f"1-{row}", "w", "a" * 32, [(batch_of(1, first=row), "no")])


def dead_ids(segment):
    return [name for letter in DeadLetters(segment).read(1000) for name in letter.batch["id"].to_pylist()]


def test_a_pass_moves_no_more_letters_and_blocks_than_it_may(at):
    add_letters(at["n1"], 200)
    size = len(DeadLetters(at["n1"]).read(1)[0].data)
    assert route(at).move_letters(ALL, 10).letters == 10
    done = route(at).move_letters(10 * size)
    assert 1 <= done.letters <= 10 and done.bytes >= 10 * size
    assert route(at).move_letters(0).letters == 0
    at["n1"].publish(blocks_of(400))
    assert route(at).run(ALL, 70).blocks == 70
    while route(at).move_letters(ALL, 50).letters:
        pass
    assert sorted(dead_ids(at["n2"]) + dead_ids(at["n3"])) == names(200)


def test_letters_go_where_there_is_room_except_the_one_that_was_tried(at, nodes):
    add_letters(at["n1"], 3)
    nodes["n2"].client().config_set("maxmemory", 1)
    done = route(at, {"n2": 900, "n3": 100}).move_letters(ALL)
    assert (done.letters, "is full" in done.last_error) == (2, True)
    assert len(dead_ids(at["n3"])) == 2
    nodes["n3"].client().config_set("maxmemory", 1)
    done = route(at, {"n2": 900, "n3": 100}).move_letters(ALL)
    assert (done.letters, "is full" in done.last_error) == (0, True)
    nodes["n2"].client().config_set("maxmemory", 2**28)
    assert route(at, {"n2": 0, "n3": 0}).move_letters(ALL).letters == 1
    assert sorted(dead_ids(at["n2"]) + dead_ids(at["n3"])) == names(3)


def test_a_letter_waits_for_a_node_that_may_have_taken_it_and_did_not_answer(at, nodes):
    add_letters(at["n1"], 3)
    nodes["n2"].kill()
    done = route(at, {"n2": 900, "n3": 100}).move_letters(ALL)
    assert (done.letters, len(dead_ids(at["n3"])), len(dead_ids(at["n1"]))) == (2, 2, 1)
    assert "is not responding" in done.last_error
    nodes["n2"].start()
    assert route(segments(nodes), {"n2": 0, "n3": 900}).move_letters(ALL).letters == 1
    assert len(dead_ids(at["n2"])) == 1


def interrupt_move(at, monkeypatch):
    """As if the process were killed when n2 has the letter, and n1 still has it, too."""
    add_letters(at["n1"], 1)
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(DeadLetters, "confirm", raise_interrupt)
        route(at, {"n2": 1}).move_letters(ALL)
    assert dead_ids(at["n1"]) == dead_ids(at["n2"]) == names(1)


def raise_interrupt(*_):
    raise KeyboardInterrupt


def requeue_all(segment):
    letters = DeadLetters(segment)
    return list(letters.requeue({letter.dead_id: letter.digest for letter in letters.read()}).values())


def test_a_letter_whose_move_was_interrupted_is_requeued_only_once(at, monkeypatch):
    interrupt_move(at, monkeypatch)
    assert [requeue_all(segment) for segment in at.values()] == [[MOVING], [1], []]
    assert everywhere(at) == names(1)
    assert route(at, {"n2": 1}).move_letters(ALL).letters == 1
    assert not any(dead_ids(segment) for segment in at.values())


def test_a_letter_whose_move_was_interrupted_stays_as_it_is_at_its_source(at, monkeypatch):
    interrupt_move(at, monkeypatch)
    letters = DeadLetters(at["n1"])
    (letter,) = letters.read()
    assert letters.discard({letter.dead_id: letter.digest}) == {letter.dead_id: MOVING}
    with pytest.raises(BadInput, match="is being moved"):
        letters.amend(letter.dead_id, letter.digest, batch_of(1))
    assert letters.read() == [letter]


def test_a_letter_whose_move_was_interrupted_goes_to_no_other_node(at, nodes, monkeypatch):
    interrupt_move(at, monkeypatch)
    nodes["n2"].client().config_set("maxmemory", 1)
    done = route(at, {"n2": 0, "n3": 1}).move_letters(ALL)
    assert (done.letters, dead_ids(at["n3"])) == (0, [])
    nodes["n2"].client().config_set("maxmemory", 2**28)
    assert route(at, {"n2": 0, "n3": 1}).move_letters(ALL).letters == 1
    assert [dead_ids(segment) for segment in at.values()] == [[], names(1), []]


def test_letters_marked_for_a_node_that_is_gone_can_be_requeued_where_they_are(at):
    add_letters(at["n1"], 2)
    DeadLetters(at["n1"]).depart("n9", ["n9"], 10, ALL)
    assert at["n1"].list_marked_nodes() == {"n9"}
    assert at["n1"].measure()["leaving_letters"] == 2
    assert at["n1"].stay(["n9"]) == 2
    assert requeue_all(at["n1"]) == [1, 1]


def test_a_letter_that_moved_is_as_old_as_before(at):
    add_letters(at["n1"], 1)
    (before,) = DeadLetters(at["n1"]).read()
    age_letters(at["n1"], 3_600)
    (before,) = DeadLetters(at["n1"]).read()
    route(at, {"n2": 1}).move_letters(ALL)
    route(at, {"n3": 1}, "n2").move_letters(ALL)
    (moved,) = DeadLetters(at["n3"]).read()
    assert moved.at_seconds == before.at_seconds
    assert (moved.error, moved.tries, moved.digest) == (before.error, before.tries, before.digest)


def age_letters(segment, seconds):
    """As if they had been added so much earlier."""
    for dead_id, fields in segment.node.xrange("weir:alert:dead"):
        earlier = int(dead_id.split(b"-")[0]) - seconds * 1000
        segment.node.xdel("weir:alert:dead", dead_id)
        segment.node.xtrim("weir:alert:dead", 0)
        segment.node.delete("weir:alert:dead")
        segment.node.xadd("weir:alert:dead", fields, id=f"{earlier}-0")
