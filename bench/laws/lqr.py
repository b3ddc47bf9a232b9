"""How long the balance law's design takes: N unlike replicas, states their differences and the sums of these.

The peer is scipy's solver for the same equation, by the generalised eigenvalues of a pencil; it is not run for N = 200,
where it takes minutes.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg

from controllers.design.lqr import design_regulator
from controllers.flow.balance_gains import build_difference_system, design_balance_gains

SIZES = (64, 200)
PEER_SIZE = 64
LIMIT_SECONDS = {64: 0.020, 200: 3.0}
LIMIT_RADIUS = 0.75


def models(replicas: int) -> tuple[np.ndarray, np.ndarray]:
    """a and b of replicas whose speeds differ by a factor of 3."""
    chance = np.random.default_rng(replicas)
    return chance.uniform(0.6, 0.95, replicas), chance.uniform(0.5, 1.5, replicas)


def run(seconds: float) -> dict[str, Any]:
    figures, ratio, share = {}, {}, seconds / (len(SIZES) + 1)
    for size in SIZES:
        system = build_difference_system(*models(size), q=1.0, integral=0.5, r=0.1)
        figures[f"n{size}_seconds"] = fastest(partial(design_regulator, *system), share)
        figures[f"n{size}_spectral_radius"] = design_regulator(*system).spectral_radius
        ratio[f"n{size}_of_limit_seconds"] = figures[f"n{size}_seconds"] / LIMIT_SECONDS[size]
        ratio[f"n{size}_of_limit_radius"] = figures[f"n{size}_spectral_radius"] / LIMIT_RADIUS
    alike = np.full(SIZES[-1], 0.8), np.full(SIZES[-1], 1.0)
    figures[f"n{SIZES[-1]}_alike_seconds"] = fastest(
        lambda: design_balance_gains(*alike, q=1.0, integral=0.5, r=0.1), share / 10
    )
    system = build_difference_system(*models(PEER_SIZE), q=1.0, integral=0.5, r=0.1)
    peer = fastest(lambda: linalg.solve_discrete_are(*system), share)
    return {
        "figures": figures,
        "peers": {f"scipy_n{PEER_SIZE}_seconds": peer},
        "ratio": ratio | {f"n{PEER_SIZE}_to_scipy": figures[f"n{PEER_SIZE}_seconds"] / peer},
    }


def fastest(call: Callable[[], Any], seconds: float) -> float:
    """The best of many: what it costs when nothing else runs."""
    best, end = float("inf"), time.perf_counter() + seconds
    while best == float("inf") or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best
