"""The environment that a process of ours gives to the processes it starts, or goes on with itself: only what
they need. Passwords and keys are for those that use them; a rule, a job or a library in any other process
can't leak what it was never given.

| for | gets |
|---|---|
| every process | EVERYWHERE, and what begins with a prefix of EVERYWHERE_PREFIXES |
| Spark: driver's Java, executors, Python workers, master and worker of a cluster | no more than that |
| the pipeline | besides, PIPELINE, WEIR_PIPELINE_… and OTEL_… |
| Spark's process of batch jobs | besides, WEIR_SPARK_SECRET and WEIR_PIPELINE_… (its declaration) |
| the lab's simulation | no more than everywhere |
"""

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from queues import environment as variables

EVERYWHERE = frozenset(
    {
        "HOME",
        "JAVA_HOME",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LOGNAME",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONHASHSEED",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONUNBUFFERED",
        "PYTHONWARNINGS",
        "TEMP",
        "TMP",
        "TMPDIR",
        "TZ",
        "USER",
        "VIRTUAL_ENV",
    }
)
EVERYWHERE_PREFIXES = ("ARROW_", "LC_", "MALLOC_", "PYSPARK_", "SPARK_")
PIPELINE = frozenset(
    variable.name
    for variable in (
        variables.REDIS_URL,
        variables.DATA,
        variables.NODE_LOGIN,
        variables.SPARK_SECRET,
        variables.HEARTBEAT_FILE,
    )
)
PIPELINE_PREFIX = variables.PIPELINE_PREFIX
PIPELINE_PREFIXES = (PIPELINE_PREFIX, variables.OTLP_PREFIX)


def python_path(root: str) -> str:
    """PYTHONPATH of a process that finds our packages in `root` first, then where this one does."""
    return os.pathsep.join(filter(None, [root, variables.PROCESS.get(variables.PYTHONPATH, "")]))


def select_needed(
    environment: Mapping[str, str], names: Collection[str] = (), prefixes: tuple[str, ...] = ()
) -> dict[str, str]:
    """Of an environment what every process may have, and these names and prefixes."""
    begins = (*EVERYWHERE_PREFIXES, *prefixes)
    return {
        name: value
        for name, value in environment.items()
        if name in EVERYWHERE or name in names or name.startswith(begins)
    }


@contextmanager
def narrow_environment(environment: Mapping[str, str]) -> Iterator[None]:
    """While inside, processes that are started get this environment, and no other thread should need more."""
    before = dict(variables.PROCESS)
    _replace_environment(environment)
    try:
        yield
    finally:
        _replace_environment(before)


def _replace_environment(environment: Mapping[str, str]) -> None:
    for name in set(variables.PROCESS) - set(environment):
        del variables.PROCESS[name]
    variables.PROCESS.update(environment)


def go_on_with(environment: Mapping[str, str]) -> None:
    """Starts this program again in the same process without the rest of its environment, which otherwise can
    be read in /proc by all that the process starts. Returns where there is no rest.
    """
    if set(variables.PROCESS) - set(environment):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], dict(environment))
