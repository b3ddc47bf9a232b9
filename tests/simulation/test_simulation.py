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
KNOWN_SEED = 97  # a short run
LONG_SECONDS = 3_600
MAX_RUNS = 20  # in which a planted defect is found


def simulate(module: str, *words: object) -> dict:
    """Return what a simulation prints."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", module, *map(str, words), "--json"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr[-4_000:]
    return json.loads(done.stdout)


def check_simulation(*words: object) -> dict:
    """Return what a simulation without a violation prints."""
    print("manage.py simulate", *words)  # noqa: T201
    found = simulate("bench.simulation.process", *words)
    if violated := found["violated"]:
        faults = ",".join(str(fault["number"]) for fault in violated["faults"]) or ","
        replay = f"manage.py simulate --seed {violated['seed']} --only {faults}"
        pytest.fail(f"{violated['violations']}\nTo replay: {replay}\nFaults: {violated['faults']}")
    assert found["total"]["active_seconds"] > 0
    return found


def test_a_known_seed_violates_nothing_and_repeats_exactly():
    """The long test simulates new seeds. Here, a new seed could fail a change that didn't cause the violation."""
    first, second = (check_simulation("--seed", KNOWN_SEED) for _ in range(2))
    for found in (first, second):
        for name in ("wall_seconds", "cpu_seconds"):
            del found["total"][name]
    assert first == second
    assert first["total"]["steps"] > 1_000


@pytest.mark.slow
def test_new_seeds_violate_nothing_for_an_hour():
    first = time.time_ns() % (MAX_SEED - 10**6)
    check_simulation("--seed", first, "--seconds", LONG_SECONDS)


@pytest.mark.thorough
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(defect):
    """The number of runs is limited, not the time: a slow host finds the same."""
    words = ("--seed", 1, "--runs", MAX_RUNS, "--kinds", DEFECTS[defect].kinds, "--whole")
    found = simulate("tests.simulation.planted", defect, *words)
    assert found["violated"] is not None, f"{found['runs']} runs found nothing"
    assert DEFECTS[defect].shows in " ".join(found["violated"]["violations"])
