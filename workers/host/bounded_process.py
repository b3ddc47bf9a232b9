"""Limits of a process that does requested work: its maximum memory and CPU time.

The process applies them to itself before it starts. One that uses too much memory gets a MemoryError; one that uses too
much CPU time is ended by SIGXCPU. Its parent, a worker or the console, is not affected.
"""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from common import environment as variables
from workers.host.environment import build_python_path, select_needed

BYTES_PER_MEBIBYTE = 2**20
CPU_GRACE_SECONDS = 1  # between SIGXCPU, which identifies the cause, and SIGKILL


@dataclass(frozen=True)
class ProcessLimits:
    """The limits.

    memory_bytes: of its address space, including libraries. cpu_seconds: of all of its threads together.
    """

    memory_bytes: int
    cpu_seconds: int

    def apply(self) -> None:
        """Limit the calling process and its children; lower limits in force are kept."""
        _limit(resource.RLIMIT_AS, self.memory_bytes, self.memory_bytes)
        _limit(resource.RLIMIT_CPU, self.cpu_seconds, self.cpu_seconds + CPU_GRACE_SECONDS)
        _limit(resource.RLIMIT_CORE, 0, 0)

    def describe_memory_limit(self) -> str:
        return f"more than {self.memory_bytes // BYTES_PER_MEBIBYTE:,} MiB of memory"

    def describe_cpu_limit(self) -> str:
        return f"more than {self.cpu_seconds:,} s of CPU time"


def was_over_cpu(exit_status: int | None) -> bool:
    """Return whether a process with this exit status was ended because it used too much CPU time."""
    return exit_status == -signal.SIGXCPU


def _limit(kind: int, soft: int, hard: int) -> None:
    """Set both limits, but never above the hard limit in force."""
    ceiling = resource.getrlimit(kind)[1]
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))


ROOT = Path(__file__).resolve().parents[2]


class ProcessFailed(Exception):  # noqa: N818
    """Raised when the process gave no answer; says why."""


def answer_of(module: str, order: object, seconds: float) -> dict[str, Any]:
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
        answer: dict[str, Any] = orjson.loads(done.stdout)
        return answer
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
