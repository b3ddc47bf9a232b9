"""A separate process for code that may hang, grow, or read what it must not: one JSON document in, one out.

It inherits only the environment variables that every process has: no secret, no proxy, no ~/.netrc. It ends at its time
limit, and its memory and CPU time are bounded.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from common import environment as variables
from workers.host.environment import build_python_path, select_needed
from workers.host.process_limits import ProcessLimits, was_over_cpu

ROOT = Path(__file__).resolve().parents[2]


class ProcessFailed(Exception):  # noqa: N818
    """Raised when the process gave no answer; says why."""


def answer_of(module: str, order: Any, seconds: float) -> Any:
    """Return the answer of a module that calls `serve`, run as a process. Raises ProcessFailed."""
    environment = {
        **select_needed(variables.PROCESS),
        variables.PYTHONPATH: build_python_path(str(ROOT)),
        "NETRC": "/dev/null",
    }
    try:
        # Its standard error is discarded: it may have a secret, and it is unbounded.
        done = subprocess.run(
            (sys.executable, "-m", module),
            input=orjson.dumps(order),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise ProcessFailed(f"did not finish within {seconds:.0f} s") from None
    except OSError as error:  # this host has no room for another process
        raise ProcessFailed(f"cannot be started: {error.strerror}") from None
    try:
        return orjson.loads(done.stdout)
    except orjson.JSONDecodeError:
        pass
    if was_over_cpu(done.returncode):
        raise ProcessFailed("was stopped: it exceeded its CPU time limit")
    if done.returncode < 0:
        raise ProcessFailed(f"was stopped by signal {-done.returncode}: it exceeded its time or memory limit")
    raise ProcessFailed(f"exited without a result (exit status {done.returncode})")


def serve(handle: Callable[[Any], Any], most_memory_bytes: int, most_core_seconds: int) -> None:
    """Read the order and answer it, in that process and within these limits."""
    answers = os.dup(1)  # text that a library prints is no answer
    os.dup2(2, 1)
    ProcessLimits(most_memory_bytes, most_core_seconds).apply()
    with os.fdopen(answers, "wb") as out:
        out.write(orjson.dumps(handle(orjson.loads(sys.stdin.buffer.read()))))
