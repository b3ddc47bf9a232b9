"""Moves of points as values: any sequence of them keeps what a queue must keep."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from queues import points as thousand
from queues.topology import NodeSpec, QueueSpec, Topology
from workers.placement import moves
from workers.placement.moves import Move

NODES = [f"n{number}" for number in range(6)]
SHARES = st.lists(st.sampled_from(NODES), min_size=2, max_size=6, unique=True).flatmap(
    lambda names: st.lists(st.integers(1, 99), min_size=len(names), max_size=len(names)).map(
        lambda weights: thousand.share(names, dict(zip(names, weights, strict=True)))
    )
)
ANY_MOVE = st.builds(Move, st.just("alert"), st.sampled_from(NODES), st.sampled_from(NODES), st.integers(-5, 1100))


def topology(points, minimum=2, **flags):
    nodes = {name: NodeSpec(name, f"redis://{name}:1/0", **flags.get(name, {})) for name in NODES}
    queue = QueueSpec("alert", "jobs", points, minimum_containers=minimum)
    return Topology(7, nodes, {"alert": queue})


@given(SHARES, SHARES)
def test_the_moves_between_two_divisions_lead_from_one_to_the_other_with_the_fewest_points(before, wanted):
    found = moves.compute_moves("alert", before, wanted)
    assert moves.apply_moves({"alert": before}, found)["alert"] == wanted
    surplus = sum(max(0, points - wanted.get(node, 0)) for node, points in before.items())
    assert sum(move.points for move in found) == surplus


@given(SHARES, SHARES)
def test_inverse_moves_lead_back(before, wanted):
    found = moves.compute_moves("alert", before, wanted)
    there = moves.apply_moves({"alert": before}, found)
    back = moves.apply_moves(there, [move.inverse for move in reversed(found)])
    assert back["alert"] == before


@given(SHARES, st.lists(ANY_MOVE, min_size=1, max_size=8), st.integers(1, 4))
def test_whatever_moves_pass_the_check_keep_the_sum_and_the_minimum_of_containers(before, wanted, minimum):
    plant = topology(before, minimum, n5={"drained": True}, n4={"cordoned": True})
    try:
        moves.check(wanted, plant, offline=["n3"])
    except BadInput:
        return
    held = moves.apply_moves({"alert": before}, wanted)["alert"]
    assert sum(held.values()) == 1000
    assert all(points > 0 for points in held.values())
    assert len(held) >= min(minimum, len(before))
    assert all(held.get(node, 0) <= before.get(node, 0) for node in ("n3", "n4", "n5"))


@pytest.mark.parametrize(
    ("move", "field", "why"),
    [
        (Move("orders", "n0", "n1", 10), "moves[0].queue", "unknown"),
        (Move("alert", "n9", "n1", 10), "moves[0].from", "unknown"),
        (Move("alert", "n0", "n9", 10), "moves[0].to", "unknown"),
        (Move("alert", "n0", "n0", 10), "moves[0].to", "must not be the same node"),
        (Move("alert", "n0", "n3", 10), "moves[0].to", "OFFLINE"),
        (Move("alert", "n0", "n4", 10), "moves[0].to", "cordoned"),
        (Move("alert", "n0", "n5", 10), "moves[0].to", "drained"),
        (Move("alert", "n0", "n1", 0), "moves[0].points", "at least 1"),
        (Move("alert", "n0", "n1", 601), "moves[0].points", "600"),
        (Move("alert", "n2", "n1", 1), "moves[0].points", "at most 0, the points on n2"),
        (Move("alert", "n0", "n1", 600), "moves", "2 containers \\(minimum_containers\\)"),
    ],
)
def test_a_move_that_can_not_be_is_refused_by_field(move, field, why):
    plant = topology({"n0": 600, "n1": 400}, n5={"drained": True}, n4={"cordoned": True})
    with pytest.raises(BadInput, match=why) as caught:
        moves.check([move], plant, offline=["n3"])
    assert caught.value.field == field


def test_the_hash_says_moves_and_revision():
    move = Move("alert", "n0", "n1", 10)
    first = moves.digest([move], 7)
    assert len(first) == 64
    assert first == moves.digest([Move("alert", "n0", "n1", 10)], 7)
    assert first != moves.digest([move], 8)
    assert first != moves.digest([Move("alert", "n0", "n1", 11)], 7)
