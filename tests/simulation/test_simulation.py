"""Runs of the simulation: seeds without a violation, exact repetitions, and planted defects that are found."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.simulation.planted import DEFECTS

ROOT = Path(__file__).resolve().parents[2]
MAX_SEED = 2**31 - 1
SECONDS, LONG_SECONDS = 40, 3_600
HOURS, PLANTED_HOURS, MAX_RUNS = 2_400, 300, 20
FEW_HOURS = 0.1  # one episode


def simulate(module: str, *words: object) -> dict:
    """Return what a simulation prints."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", module, *map(str, words), "--json"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr[-4_000:]
    return json.loads(done.stdout)


def simulate_seeds(first: int, seconds: float) -> None:
    print(f"manage.py simulate --seed {first} --hours {HOURS} --seconds {seconds}")  # noqa: T201
    found = simulate("bench.simulation.process", "--seed", first, "--hours", HOURS, "--seconds", seconds)
    violated = found["violated"]
    assert violated is None, (
        f"manage.py simulate --seed {violated['seed']} --hours {HOURS}: {violated['violations']}, "
        f"faults {violated['faults']}"
    )
    assert found["total"]["active_seconds"] > 0


def test_known_seeds_violate_nothing():
    """The long test simulates new seeds. Here, a new seed could fail a change that didn't cause the violation."""
    simulate_seeds(1, SECONDS)


@pytest.mark.slow
def test_new_seeds_violate_nothing_for_an_hour():
    simulate_seeds(time.time_ns() % (MAX_SEED - 10**6), LONG_SECONDS)


def test_a_seed_repeats_a_run_exactly():
    words = ("bench.simulation.process", "--seed", 7, "--hours", FEW_HOURS)
    first, second = simulate(*words), simulate(*words)
    for found in (first, second):
        del found["total"]["wall_seconds"]
    assert first == second
    assert first["total"]["steps"] > 1_000


@pytest.mark.thorough
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(defect):
    """The number of runs is limited, not the time: a slow host finds the same."""
    words = ("--seed", 1, "--hours", PLANTED_HOURS, "--runs", MAX_RUNS, "--kinds", DEFECTS[defect].kinds, "--whole")
    found = simulate("tests.simulation.planted", defect, *words)
    assert found["violated"] is not None, f"{found['runs']} runs found nothing"
    assert DEFECTS[defect].shows in " ".join(found["violated"]["violations"])
