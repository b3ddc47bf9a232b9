"""A test of laws on a load that triples, on operators whose tasks slow each other down.

Each of three operators with p tasks passes  r p / (1 + .04 (p - 1))  events/s. A step of `STEP_SECONDS` is one
decision, in force from the next step on; measurements have 2 % noise. After `BEFORE` steps the load triples. The
optimum is the fewest tasks busy for at most .7 of their time.

changes         steps after which any tasks changed, from the increase on
violated_steps  steps in which some operator was offered more than it passes; the first is unavoidable
instances       tasks at the end over the optimum
reversals       changes of one operator against the direction of its last
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from controllers.baselines.parallelism import TARGET, Hpa, MeasuredInterval, SeenPath, Tasks, apply_dhalion, apply_ds2
from controllers.parallelism.joint_law import JointState
from controllers.parallelism.needs import JointParameters, ScalingCurve
from controllers.simulation.elasticity import decide_jointly
from controllers.simulation.scenario import create_random_generator

STEP_SECONDS, BEFORE, AFTER, TIMES = 60.0, 10, 20, 3.0
CONTENTION, NOISE, LOAD_PER_SECOND, MAXIMUM = 0.04, 0.02, 1_000.0, 60
# r of the operators: events/s of a single task.
ALONE = {"first": 500.0, "second": 400.0, "third": 650.0}
SETTINGS = JointParameters(
    target_utilisation=TARGET,
    bound_seconds=1.0,
    maximum=MAXIMUM,
    window_seconds=STEP_SECONDS,
    interval_seconds=STEP_SECONDS,
    # The backlog is worked off alongside the load, not by tasks that are idle afterwards.
    missed_cost=3.0,
    change_seconds=100.0,
)


@dataclass(frozen=True)
class StepOutcome:
    changes: int
    violated_steps: int
    instances: float
    reversals: int


def build_scaling_curve(alone_per_second: float) -> ScalingCurve:
    """Return the cost of an event for r events/s of a single task."""
    slope = CONTENTION / alone_per_second
    return ScalingCurve(1 / alone_per_second - slope, slope)


def compute_fewest_tasks(load_per_second: float) -> dict[str, int]:
    """Return the fewest tasks busy for at most .7 of their time."""
    return {
        name: int(build_scaling_curve(alone).compute_fewest_tasks(load_per_second, TARGET))
        for name, alone in ALONE.items()
    }


def run_step(law: str, seed: int) -> StepOutcome:
    chance, decide = create_random_generator(seed, "load step"), LAWS[law]()
    tasks, backlog = compute_fewest_tasks(LOAD_PER_SECOND), dict.fromkeys(ALONE, 0.0)
    history, violated = [tasks], 0
    for step in range(BEFORE + AFTER):
        load = LOAD_PER_SECOND * (TIMES if step >= BEFORE else 1.0)
        capacity = {
            name: build_scaling_curve(alone).compute_capacity_per_second(tasks[name]) for name, alone in ALONE.items()
        }
        violated += any(rate < load for rate in capacity.values())
        piled = {name: backlog[name] + (load - capacity[name]) * STEP_SECONDS for name in ALONE}
        backlog = {name: max(0.0, each) for name, each in piled.items()}
        seen = _observe(step, load, tasks, backlog, chance)
        tasks = dict(decide(seen))
        history.append(tasks)
    since, reversals = history[BEFORE:], 0
    for name in ALONE:
        moves = np.sign(np.diff([step[name] for step in since]))
        moves = moves[moves != 0]
        reversals += int((moves[1:] != moves[:-1]).sum())
    best = sum(compute_fewest_tasks(LOAD_PER_SECOND * TIMES).values())
    changes = sum(before != after for before, after in itertools.pairwise(since))
    return StepOutcome(changes, violated, sum(history[-1].values()) / best, reversals)


def _observe(
    step: int, load: float, tasks: Tasks, backlog: Mapping[str, float], chance: np.random.Generator
) -> SeenPath:
    rows = []
    for name, alone in ALONE.items():
        offered, service = 1 + NOISE * chance.standard_normal(2)
        true = build_scaling_curve(alone).compute_service_seconds(tasks[name])
        busy = load * true > tasks[name]
        row = MeasuredInterval(
            name,
            tasks[name],
            load * float(offered),
            true * float(service),
            backlog[name],
            min(load, tasks[name] / true) * STEP_SECONDS,
            0.0,
            float(busy or backlog[name] > load),
        )
        rows.append(row)
    return SeenPath(rows, (step + 1) * STEP_SECONDS, 1, MAXIMUM)


def _build_joint_law() -> Callable[[SeenPath], Tasks]:
    state = JointState()

    def decide(seen: SeenPath) -> Tasks:
        nonlocal state
        state, tasks = decide_jointly(SETTINGS, state, seen)
        return tasks

    return decide


LAWS: Mapping[str, Callable[[], Callable[[SeenPath], Tasks]]] = {
    "joint": _build_joint_law,
    "ds2": lambda: apply_ds2,
    "hpa": lambda: Hpa().decide,
    "dhalion": lambda: apply_dhalion,
}
