"""How long a plan for a large plant takes.

1,000 nodes of 8 kinds; 100 queues of 50 containers each, which a plan doesn't need to know; and 300 operators of 60
applications and 40 queues with workers, in 20 pools. A plan is what a loop needs: setpoints, without an explanation.
The explained plan adds shadow prices, the upper end of the forecast, and ways out.
"""

import time
from typing import Any

import numpy as np

from controllers.planning.inputs import PlannerParameters
from controllers.planning.model import ModeledNodes, ModeledPool, ModeledQueue, ModeledStage, ModeledType, PlantModel
from controllers.planning.plan import compute_plan

LIMIT_SECONDS = 2.0
NODES, KINDS, QUEUES, CONTAINERS_PER_QUEUE, OPERATORS, APPLICATIONS, POOLS = 1_000, 8, 100, 50, 300, 60, 20
FORECAST_VALUES, FORECAST_SECONDS = 30, 60.0
PARAMETERS = PlannerParameters(horizon_seconds=1_800.0, solver_seconds=LIMIT_SECONDS)


def build_large_plant(seed: int) -> PlantModel:
    """Return a plant that is used to about two thirds, with a ramp within the horizon."""
    chance = np.random.default_rng(seed)
    rates = chance.uniform(200, 3_000, QUEUES)
    ramp = np.linspace(1.0, 1.4, FORECAST_VALUES)
    queues, stages = dict[str, ModeledQueue](), dict[str, ModeledStage]()
    for at, rate in enumerate(rates.tolist()):
        mean = rate * ramp * chance.normal(1.0, 0.03, FORECAST_VALUES)
        queues[f"q{at}"] = ModeledQueue(
            forecast_per_second=tuple(mean.tolist()),
            deviation_per_second=tuple((0.08 * mean).tolist()),
            types={
                "valuable": ModeledType(share=0.8, lost_price=1e-3, max_shed_share=0.0),
                "cheap": ModeledType(share=0.2, lost_price=float(chance.choice([1e-7, 1e-5]))),
            },
            backlog_events=float(chance.uniform(0, 5 * rate)),
            bound_seconds=float(chance.choice([5, 30, 300])),
            bad_second_price=float(chance.choice([0.002, 0.02])),
        )
        for number in range(OPERATORS // APPLICATIONS if at < APPLICATIONS else 1):
            capacity = float(chance.uniform(50, 500))
            stages[f"q{at}.{number}"] = ModeledStage(
                queue=f"q{at}",
                per_second=capacity,
                units=int(np.ceil(rate / capacity / 0.7)),
                price_per_hour=0.4,
                change_price=0.01,
                start_seconds=float(chance.choice([0, 10])),
                pool=f"p{at % POOLS}",
            )
    total = float(rates.sum()) / 0.7
    nodes = {
        f"kind{kind}": ModeledNodes(
            per_second=total / NODES * (0.5 + kind / KINDS),
            units=NODES // KINDS * 2 // 3,
            maximum=NODES // KINDS,
            price_per_hour=0.5 + kind / KINDS,
            start_seconds=120.0,
            change_price=0.01,
        )
        for kind in range(KINDS)
    }
    used = {f"p{pool}": sum(of.units for of in stages.values() if of.pool == f"p{pool}") for pool in range(POOLS)}
    pools = {
        name: ModeledPool(slots=8, units=count // 8 + 2, maximum=count // 4, price_per_hour=0.1, start_seconds=60.0)
        for name, count in used.items()
    }
    return PlantModel(queues=queues, stages=stages, nodes=nodes, pools=pools, forecast_step_seconds=FORECAST_SECONDS)


def measure_plan(seed: int, explain: bool) -> tuple[float, int]:
    """Return the seconds of a plan, and how many counts it changes."""
    model = build_large_plant(seed)
    started = time.perf_counter()
    plan = compute_plan(model, PARAMETERS, explain=explain)
    seconds = time.perf_counter() - started
    return seconds, sum(plan.units[name] != group.ordered for name, group in model.groups.items())


def run(seconds: float) -> dict[str, Any]:
    measure_plan(0, explain=False)  # imports the solver
    deadline, times, changes = time.perf_counter() + seconds, list[float](), list[int]()
    while not times or time.perf_counter() < deadline:
        took, changed = measure_plan(len(times), explain=False)
        times.append(took)
        changes.append(changed)
    return {
        "figures": {
            "plan_seconds": float(np.median(times)),
            "plan_seconds_worst": max(times),
            "explained_plan_seconds": measure_plan(0, explain=True)[0],
            "plans": len(times),
            "changes_mean": float(np.mean(changes)),
        },
        "peers": {"limit_plan_seconds": LIMIT_SECONDS, "limit_plan_seconds_worst": LIMIT_SECONDS},
        "setting": f"{NODES} nodes, {QUEUES * CONTAINERS_PER_QUEUE} containers, {OPERATORS} operators",
    }
