"""How good and how fast the rebalancing law is.

Instances: 6 to 12 nodes of BUSY 350 events/s, 48 containers of 24 queues whose rates follow Zipf's law with exponent
0.7, and 80 % of the capacity below BUSY in use. The peer is a bound from the mixed-integer program without splinters,
whole points or any smallest piece: no moves do better, so the ratio is at least the true one. `--seconds` sets how many
instances: the figures say so. The large plant has 1000 nodes and 5000 containers.
"""

import time
from typing import Any

import numpy as np

from common.parameter import build
from controllers import catalog
from controllers.framework.law import decide_next, start_state
from controllers.rebalancing import mixed_integer
from controllers.rebalancing.allocation import PlantObservation, from_observation
from controllers.rebalancing.greedy import MoveRules

LAW = catalog.get_law("rebalancing")
THRESHOLDS = {"busy": 350.0, "toobusy": 450.0}
LARGE_LIMIT_SECONDS = 1.0
BAND = 1.09


def instance(chance: np.random.Generator, nodes: int, queues: int, holders: int, filled: float = 0.8) -> dict[str, Any]:
    weights = 1 / np.arange(1, queues + 1) ** 0.7
    # On a large plant no queue may need more than its holders can carry together.
    rates = np.minimum(weights / weights.sum() * nodes * 350 * filled, holders * 350 * 0.7)
    rows = []
    for index, rate in enumerate(rates):
        where = chance.choice(nodes, holders, replace=False)
        cuts = np.sort(chance.choice(np.arange(100, 901, 50), holders - 1, replace=False))
        points = np.diff([0, *cuts, 1000])
        containers = {f"n{node}": int(each) for node, each in zip(where, points, strict=True)}
        rows.append({"name": f"q{index}", "rate": float(rate), "containers": containers})
    return {"nodes": [{"name": f"n{index}", "capacity": 1.0} for index in range(nodes)], "queues": rows}


def decide(seen: dict[str, Any], goal: str) -> tuple[dict[str, Any], float, bool]:
    """The terms, the seconds of one decision (its observation's reading included), and whether it succeeded."""
    parameters = catalog.read_parameters(LAW, {**THRESHOLDS, "goal": goal})
    started = time.perf_counter()
    read = catalog.read_observation(LAW, seen)
    catalog.check_observation(LAW, parameters, read)
    _, decision = decide_next(LAW, parameters, start_state(LAW, parameters), read)
    seconds = time.perf_counter() - started
    return dict(decision.terms), seconds, decision.limited_by is None


def compute_bound(seen: dict[str, Any], goal: mixed_integer.Goal) -> float | None:
    """The least points or moves of any answer, or None when there is none."""
    plant = from_observation(build(PlantObservation, catalog.read_observation(LAW, seen)), 2)
    limit = 350.0 if goal == "points" else BAND * float(plant.loads.mean())
    every = np.ones(len(plant.nodes), dtype=bool)
    problem = mixed_integer.MoveProblem(plant, MoveRules(1), plant.capacity * limit, every, every)
    return mixed_integer.compute_lower_bound(problem, goal, branches=200)


def quality(seconds: float) -> dict[str, float]:
    deadline, chance = time.perf_counter() + 10 * seconds, np.random.default_rng(7)
    ours = {"points": 0.0, "moves": 0.0}
    least, missed, count, worst_band = dict(ours), 0, 0, 0.0
    while count < 200 and (count < 3 or time.perf_counter() < deadline):
        seen, count = instance(chance, int(chance.integers(6, 13)), 24, 2), count + 1
        goals: tuple[tuple[mixed_integer.Goal, str], ...] = (("points", "below-busy"), ("moves", "band"))
        for goal, name in goals:
            lowest = compute_bound(seen, goal)
            terms, _, reached = decide(seen, name)
            if lowest is not None:
                missed += not reached
                ours[goal] += terms["points_moved" if goal == "points" else "moves"]
                least[goal] += lowest
            if goal == "moves":
                loads = list(terms["load_after"].values())
                worst_band = max(worst_band, max(loads) / (sum(loads) / len(loads)))
    return {
        "instances": count,
        "not_reached": missed,
        "below_busy_points": ours["points"],
        "band_moves": ours["moves"],
        "band_worst_over_mean": worst_band,
        "bound_points": least["points"],
        "bound_moves": least["moves"],
    }


def run(seconds: float) -> dict[str, Any]:
    results = quality(seconds)
    large = instance(np.random.default_rng(3), 1000, 1250, 4)
    times = {goal: decide(large, goal)[1] for goal in ("below-busy", "band")}
    peers = {name: results.pop(name) for name in ("bound_points", "bound_moves")}
    figures = results | {f"large_{goal}_seconds": value for goal, value in times.items()}
    return {
        "figures": figures,
        "peers": peers | {"limit_large_seconds": LARGE_LIMIT_SECONDS, "limit_worst_over_mean": BAND},
        "ratio": {
            "below_busy_points": figures["below_busy_points"] / max(peers["bound_points"], 1e-9),
            "band_moves": figures["band_moves"] / max(peers["bound_moves"], 1e-9),
            "large_seconds": max(times.values()) / LARGE_LIMIT_SECONDS,
        },
    }
