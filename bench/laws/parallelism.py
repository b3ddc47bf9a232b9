"""How fast tasks are allotted, how near to the optimum, and how a law takes a load that trebles.

Topologies of 300 operators on one path and on two that share a third; the limit is 50 ms for either. The peer of
quality is a mixed-integer program over small topologies with two paths: `--seconds` sets how many. The load trebles on
operators whose tasks slow each other down (`bench.laws.load_step`); the peers are other people's
rules, the ratio is tasks over the optimum.
"""

import time
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint

from bench.laws.load_step import run_step
from controllers.framework.solver import minimise
from controllers.parallelism.task_allocation import Path, QueueingOperator, allocate_fewest_tasks

LARGE, LIMIT_SECONDS, MOST, STEP_RUNS = 300, 0.05, 200, 20


def operators(chance: np.random.Generator, count: int, most: int) -> dict[str, QueueingOperator]:
    return {
        f"o{at}": QueueingOperator(
            f"o{at}", 4, float(chance.uniform(0.1, 8)), float(chance.uniform(0.1, 6)), 0.0, 1, most
        )
        for at in range(count)
    }


def path(found: dict[str, QueueingOperator], names: list[str], slack: float) -> Path:
    waiting = sum(found[name].wait_seconds(found[name].maximum) for name in names)
    return Path(tuple(names), waiting * slack)


def time_best(found: dict[str, QueueingOperator], paths: list[Path]) -> float:
    """The best of five."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        allocate_fewest_tasks(found, paths)
        times.append(time.perf_counter() - started)
    return min(times)


def best_solution(found: dict[str, QueueingOperator], paths: list[Path]) -> int:
    """The fewest tasks there are, by the solver."""
    columns = [(name, n) for name, each in found.items() for n in range(each.fewest, each.maximum + 1)]
    rows = [[float(name == solution) for name, _ in columns] for solution in found]
    for way in paths:
        rows.append(
            [found[name].wait_seconds(n) / way.budget_seconds if name in way.operators else 0.0 for name, n in columns]
        )
    low = [1.0] * len(found) + [-np.inf] * len(paths)
    high = [1.0] * len(found) + [1 + 1e-9] * len(paths)
    cost = np.asarray([n for _, n in columns], dtype=float)
    bounds, constraint = Bounds(0, 1), LinearConstraint(np.asarray(rows), low, high)
    least = minimise(cost, np.ones(len(cost)), bounds, constraint, {"mip_rel_gap": 1e-9})
    return round(float(least.fun))


def quality(seconds: float) -> tuple[int, int, int]:
    """Tasks of ours and of the optimum, and how many topologies."""
    ours, best, count = 0, 0, 0
    deadline = time.perf_counter() + 3 * seconds
    while count < 150 and (count < 3 or time.perf_counter() < deadline):
        chance = np.random.default_rng(count)
        problem = operators(chance, 6, 30)
        paths = [
            path(problem, names, float(chance.uniform(1.1, 8)))
            for names in (["o0", "o1", "o2", "o3"], ["o0", "o4", "o2", "o5"])
        ]
        ours += sum(allocate_fewest_tasks(problem, paths).values())
        best += best_solution(problem, paths)
        count += 1
    return ours, best, count


def steps(law: str) -> dict[str, float]:
    """How a law takes a load that trebles, on average."""
    runs = [run_step(law, seed) for seed in range(STEP_RUNS)]
    return {
        f"step_{name}": float(np.mean([getattr(run_, name) for run_ in runs]))
        for name in ("changes", "violated_steps", "instances")
    }


def run(seconds: float) -> dict[str, Any]:
    large = operators(np.random.default_rng(1), LARGE, MOST)
    names = list(large)
    one = time_best(large, [path(large, names, 10.0)])
    two = time_best(large, [path(large, names[:200], 10.0), path(large, names[100:], 10.0)])
    ours, best, count = quality(seconds)
    joint = steps("joint")
    return {
        "figures": {"one_path_seconds": one, "two_paths_seconds": two, "tasks": ours, "topologies": count, **joint},
        "peers": {
            "limit_seconds": LIMIT_SECONDS,
            "optimum_tasks": best,
            **{f"{law}_{name}": value for law in ("ds2", "hpa", "dhalion") for name, value in steps(law).items()},
        },
        "ratio": {
            "one_path_seconds": one / LIMIT_SECONDS,
            "two_paths_seconds": two / LIMIT_SECONDS,
            "tasks": ours / best,
            "step_instances": joint["step_instances"],
        },
    }
