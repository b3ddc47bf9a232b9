"""One thread for linear algebra in every process that may decide: two that compete take 80 times as long."""

import os
import subprocess
import sys

import pytest

from common.environment import MATH_THREADS
from console.embedded.processes import DRILL, SHOP, list_plant_processes

pytestmark = pytest.mark.slow
# Started by other processes: a simulation of the lab, and Spark's batch jobs.
STARTED_BY_OTHERS = ("workers.twin.simulation", "workers.batch.jobs.spark.process")
ASK = """
import ctypes, importlib, sys
importlib.import_module(sys.argv[1])
import numpy, scipy.linalg
paths = {line.split()[-1] for line in open("/proc/self/maps") if "openblas" in line}
names = [f"{prefix}openblas_get_num_threads{suffix}" for prefix in ("", "scipy_") for suffix in ("", "64_")]
libraries = [ctypes.CDLL(path) for path in paths]
print(*[getattr(library, name)() for library in libraries for name in names if hasattr(library, name)])
"""


def find_first_module(command):
    """Return the module of ours that a process imports first."""
    if command[0] == "uvicorn":
        return command[1].partition(":")[0]
    if command[0] == "celery":
        return command[command.index("--app") + 1]
    return command[command.index("-m") + 1] if "-m" in command else "console.command_line"


def list_modules():
    processes = [*list_plant_processes(["n1"], 2, "127.0.0.1", 8000, 1), DRILL, SHOP]
    return sorted({*(find_first_module(process.command) for process in processes), *STARTED_BY_OTHERS})


def ask(module, data, **more):
    environment = {name: value for name, value in os.environ.items() if name not in MATH_THREADS}
    environment |= {"WEIR_DATA": str(data), "DJANGO_SETTINGS_MODULE": "console.settings", **more}
    command = [sys.executable, "-c", ASK, module]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [int(count) for count in done.stdout.split()]


@pytest.mark.parametrize("module", list_modules())
def test_a_process_that_was_started_without_a_limit_has_one_thread(module, tmp_path):
    threads = ask(module, tmp_path)
    if not threads:
        pytest.skip("NumPy has no OpenBLAS here.")
    assert set(threads) == {1}


def test_a_limit_that_is_set_stays(tmp_path):
    threads = ask("console.command_line", tmp_path, **dict.fromkeys(MATH_THREADS, "2"))
    assert set(threads) <= {min(2, os.cpu_count() or 1)}
