"""Limits of a process that does requested work: its maximum memory and CPU time.

The process applies them to itself before it starts. One that uses too much memory gets a MemoryError; one that uses too
much CPU time is ended by SIGXCPU. Its parent, a worker or the console, is not affected.
"""

import resource
import signal
from dataclasses import dataclass

BYTES_PER_MEGABYTE = 2**20
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
        return f"more than {self.memory_bytes // BYTES_PER_MEGABYTE:,} MB of memory"

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
