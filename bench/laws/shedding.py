"""How fast the best table is found, building included, over the paper's grid of types, patterns, shares.

A cell `{types}x{patterns}x{share}`: every type is in that share [%] of the patterns, once or twice; each pattern feeds
an operator below that joins it with something scarce, and the budget is half the work offered. Timed is what new rates
cost: building the problem and solving it, up to the tables. What follows from the patterns alone (`ArrangedPatterns`)
is worked out when they change; `arrange` is that, for the largest cell. The peer is the program as printed, by the same
solver; above `FULL_VARIABLES` shares it is left out, since one solution takes minutes. The paper's own times are beside
them (section X-D).
"""

import time
from typing import Any

import numpy as np

from bench.laws import full_shedding_program
from controllers.patterns.application import ArrangedPatterns, OperatorPattern, arrange
from controllers.patterns.selectivity import Needs
from controllers.shedding.problem import Overload
from controllers.shedding.program import solve

TYPES, PATTERNS, SHARES = (100, 1_000, 10_000), (10, 50, 100), (10, 50, 100)
FULL_VARIABLES = 20_000
LIMITS_SECONDS = {"10000x100x100": 0.05, "1000x50x100": 0.005}
PAPER_SECONDS = {"10000x100x100": 16.25, "1000x50x100": 1.0}
RARELY = 1e-4


def instance(chance: np.random.Generator, types: int, patterns: int, share: int) -> tuple[list[OperatorPattern], Any]:
    """Patterns at the bottleneck B, one below for each, and arrivals."""
    names = np.asarray([f"t{index}" for index in range(types)])
    rows = []
    for index in range(patterns):
        used = names if share == 100 else names[chance.random(types) < share / 100]
        counts = dict(zip(used.tolist(), chance.integers(1, 3, len(used)).tolist(), strict=True))
        seconds = float(chance.uniform(0.5, 1.5)) * RARELY
        rows.append(OperatorPattern(f"b{index}", "B", Needs(counts or {"t0": 1}), f"q{index}", seconds))
        rows.append(OperatorPattern(f"d{index}", "D", Needs({f"q{index}": 1, f"u{index}": 1}), f"s{index}", 0.0))
    outside = dict(zip(names.tolist(), chance.uniform(50, 100, types).tolist(), strict=True))
    scarce = {f"u{index}": float(chance.uniform(1, 40)) for index in range(patterns)}
    return rows, {"B": outside, "D": scarce}


def overload(rows: list[OperatorPattern], arrivals: Any) -> Overload:
    application: ArrangedPatterns = arrange(rows)
    sinks = {pattern.emits: 1.0 for pattern in rows if pattern.operator == "D"}
    return Overload(application, arrivals, "B", budget_of(rows, arrivals), sinks)


def budget_of(rows: list[OperatorPattern], arrivals: Any) -> float:
    """Half of what the optimum without a budget would use: sure to bind."""
    used = 0.0
    for pattern in rows:
        if pattern.operator == "B":
            scarcest = min(arrivals["B"][symbol] / count for symbol, count in pattern.needs.counts.items())
            below = arrivals["D"][f"u{pattern.name[1:]}"]
            used += pattern.seconds * pattern.needs.size * min(scarcest, below)
    return used / 2


def time_arranging(rows: list[OperatorPattern]) -> float:
    """Seconds to work out what follows from the patterns."""
    fresh = [OperatorPattern(row.name, row.operator, row.needs, row.emits, row.seconds) for row in rows]
    started = time.perf_counter()
    application = arrange(fresh)
    assert application.places and application.consumers and all(each.counts.size for each in fresh)
    return time.perf_counter() - started


def fastest(problem: Overload, times: int = 5) -> float:
    """Seconds from rates to tables, the best of a few: what the work itself takes."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        solve(problem)
        found.append(time.perf_counter() - started)
    return min(found)


def run(seconds: float) -> dict[str, Any]:
    figures, peers, ratio = {}, dict[str, float](), {}
    for types in TYPES:
        for patterns in PATTERNS:
            for share in SHARES:
                cell = f"{types}x{patterns}x{share}"
                rows, arrivals = instance(np.random.default_rng(7), types, patterns, share)
                problem = overload(rows, arrivals)
                solve(problem)
                figures[cell] = fastest(problem)
                if types * patterns * share / 100 <= FULL_VARIABLES:
                    started = time.perf_counter()
                    full_shedding_program.find_best_solution(problem)
                    peers[f"{cell} full program"] = time.perf_counter() - started
                    ratio[f"{cell} full program"] = peers[f"{cell} full program"] / figures[cell]
    figures["arrange"] = time_arranging(rows)
    for cell, limit in LIMITS_SECONDS.items():
        peers |= {f"{cell} limit": limit, f"{cell} paper": PAPER_SECONDS[cell]}
        ratio |= {f"{cell} limit": figures[cell] / limit, f"{cell} paper": PAPER_SECONDS[cell] / figures[cell]}
    return {"figures": figures, "peers": peers, "ratio": ratio}
