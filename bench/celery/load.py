"""A square wave of tasks: HIGH a second, then LOW a second; arrivals at random, from a seed."""

import random

LOW_PER_SECOND, HIGH_PER_SECOND = 1.5, 9.0
WORK_SECONDS = (0.4, 0.8, 1.2)
LEAD_SECONDS = 20.0  # at first it is low, so that everybody begins from there
SEED = 20261124


def square_wave(seconds: float, periods: int = 1, seed: int = SEED) -> list[tuple[float, float]]:
    """(when, for how long it works) of each task, in their order."""
    chance, half = random.Random(seed), (seconds - LEAD_SECONDS) / periods / 2
    phases = [(LEAD_SECONDS, LOW_PER_SECOND), *[(half, HIGH_PER_SECOND), (half, LOW_PER_SECOND)] * periods]
    tasks, begins = list[tuple[float, float]](), 0.0
    for length, rate in phases:
        at = begins
        while (at := at + chance.expovariate(rate)) < begins + length:
            tasks.append((at, chance.choice(WORK_SECONDS)))
        begins += length
    return tasks
