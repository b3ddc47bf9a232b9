"""The law against the optimum of programs written down here anew, on random plants.

6 to 12 nodes of BUSY 350 events/s, 48 containers, rates after Zipf's law with exponent 0.7. The programs know no
smallest piece, no whole points and no minimum of containers, so their optimum is a bound: no answer is better, and what
is near it is near the true optimum.
"""

import math

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from controllers import catalog
from controllers.framework.law import decide_next, start_state
from controllers.rebalancing.law import Rebalancing
from tests.controllers.rebalancing.plants import after, loads, node, observation, queue

LAW = Rebalancing()
BUSY, BAND = 350.0, 1.09


def plant(chance, filled, holders):
    """A random plant of 48 containers; a queue's points are in `holders` of them."""
    names = [f"n{index}" for index in range(int(chance.integers(6, 13)))]
    count = 48 // holders
    weights = 1 / np.arange(1, count + 1) ** 0.7
    rates = weights / weights.sum() * len(names) * BUSY * filled
    queues = []
    for index, rate in enumerate(rates):
        where = chance.choice(names, holders, replace=False)
        cuts = np.sort(chance.choice(np.arange(100, 901, 50), holders - 1, replace=False))
        points = np.diff([0, *cuts, 1000])
        held = {str(name): int(each) for name, each in zip(where, points, strict=True)}
        queues.append(queue(f"q{index}", float(rate), held))
    return observation([node(name) for name in names], queues)


def decide(seen, goal):
    parameters = catalog.read_parameters(LAW, {"busy": BUSY, "toobusy": 450, "goal": goal})
    read = catalog.read_observation(LAW, seen)
    _, decision = decide_next(LAW, parameters, start_state(LAW, parameters), read)
    return [] if decision.action is None else decision.action["moves"]


def bound(seen, limit, *, count_moves):
    """The fewest points, or moves, of any answer within the limit; None when there is none."""
    names = [each["name"] for each in seen["nodes"]]
    carried = loads(seen, {each["name"]: each["containers"] for each in seen["queues"]})
    held = [
        (names.index(name), points, each["rate"] / 1000)
        for each in seen["queues"]
        for name, points in each["containers"].items()
    ]
    ways = [(c, to) for c, (source, _, _) in enumerate(held) for to in range(len(names)) if to != source]
    size, first = len(ways), len(names) + len(held)
    entries = []  # row, column, value: the nodes' loads, then what leaves each container, then each way
    for way, (container, target) in enumerate(ways):
        source, points, load = held[container]
        entries += [(source, way, -load), (target, way, load), (len(names) + container, way, 1.0)]
        entries += [(first + way, way, 1.0), (first + way, size + way, -points)]
    rows, columns, values = zip(*entries, strict=True)
    matrix = coo_array((values, (rows, columns)), shape=(first + size, 2 * size)).tocsr()
    room = [limit - carried[name] for name in names]
    high = np.concatenate([room, [points for _, points, _ in held], np.zeros(size)])
    cost = np.zeros(2 * size)
    cost[size if count_moves else 0 : 2 * size if count_moves else size] = 1
    result = milp(
        cost,
        integrality=np.repeat([0, int(count_moves)], size),
        bounds=Bounds(0, np.concatenate([[held[container][1] for container, _ in ways], np.ones(size)])),
        constraints=LinearConstraint(matrix, -np.inf, high),
        options={"node_limit": 100},
    )
    if result.status == 2:
        return None
    least = result.mip_dual_bound if count_moves else result.fun
    return max(0, math.ceil(least - 1e-6))


def compare(count, filled=0.8, holders=2, seed=11):
    """Points over the bound's, moves over the bound's, and the worst node over the mean in the band."""
    chance = np.random.default_rng(seed)
    points = points_least = moves = moves_least = 0
    for _ in range(count):
        seen = plant(chance, filled, holders)
        mean = sum(each["rate"] for each in seen["queues"]) / len(seen["nodes"])
        relief, balance = (decide(seen, goal) for goal in ("below-busy", "band"))
        least = bound(seen, BUSY, count_moves=False)
        if least is not None:
            assert max(loads(seen, after(seen, relief)).values()) < BUSY
            points += sum(move["points"] for move in relief)
            points_least += least
        fewest = bound(seen, BAND * mean, count_moves=True)
        if fewest is not None:
            assert max(loads(seen, after(seen, balance)).values()) <= BAND * mean * (1 + 1e-6)
            moves += len(balance)
            moves_least += fewest
    return points / points_least, moves / moves_least


@pytest.mark.thorough
def test_on_random_plants_the_law_is_near_the_best():
    points, moves = compare(8)
    assert points <= 1.15 and moves <= 1.1


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_on_two_hundred_random_plants_the_law_is_near_the_best():
    points, moves = compare(200)
    assert points <= 1.15 and moves <= 1.1
