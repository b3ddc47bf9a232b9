"""Environments that our processes pass to the processes they start, or continue with: only what those need.

Passwords and keys go only to the processes that use them; a rule, a job, or a library in any other process cannot leak
what it never received.

| for | gets |
|---|---|
| every process | EVERYWHERE, and names with a prefix of EVERYWHERE_PREFIXES |
| Spark: driver's Java, executors, Python workers, master and worker of a cluster | no more than that |
| the pipeline | also PIPELINE, WEIR_PIPELINE_… and OTEL_… |
| Spark's process of batch jobs | also WEIR_SPARK_SECRET and WEIR_PIPELINE_… (its declaration) |
| the lab's simulation | the same as every process |
"""

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from common import environment as variables
from common.errors import Forbidden

EVERYWHERE = frozenset(
    {
        "HOME",
        "JAVA_HOME",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LOGNAME",
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
        *variables.MATH_THREADS,
    }
)
EVERYWHERE_PREFIXES = ("ARROW_", "LC_", "MALLOC_", "PYSPARK_", "SPARK_")
PIPELINE = frozenset(
    variable.name
    for variable in (
        variables.REDIS_URL,
        variables.DATA,
        variables.NODE_LOGIN,
        variables.SPARK,
        variables.SPARK_SECRET,
        variables.HEARTBEAT_FILE,
    )
)
PIPELINE_PREFIX = variables.PIPELINE_PREFIX
PIPELINE_PREFIXES = (PIPELINE_PREFIX, variables.OTLP_PREFIX)


def build_python_path(root: str) -> str:
    """Return the PYTHONPATH of a process that finds our packages in `root` first, then as here."""
    return os.pathsep.join(filter(None, [root, variables.PROCESS.get(variables.PYTHONPATH, "")]))


def select_needed(
    environment: Mapping[str, str], names: Collection[str] = (), prefixes: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the part of an environment that every process may have, and these names and prefixes."""
    begins = (*EVERYWHERE_PREFIXES, *prefixes)
    return {
        name: value
        for name, value in environment.items()
        if name in EVERYWHERE or name in names or name.startswith(begins)
    }


@contextmanager
def use_narrow_environment(environment: Mapping[str, str]) -> Iterator[None]:
    """Pass only this environment to processes started while inside; no other thread should need more then."""
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
    """Restart this program in the same process without the rest of its environment.

    Otherwise, all that the process starts could read the rest in /proc. Returns where there is no rest.
    """
    if set(variables.PROCESS) - set(environment):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], dict(environment))


def check_handler_path(path: str, field: str) -> None:
    """Raise Forbidden naming the field, before anything is imported, unless the host allows the path."""
    allowed = variables.HANDLERS.get_text().replace(",", " ").split()
    if not any(path == prefix or path.startswith(f"{prefix}.") for prefix in allowed):
        listed = ", ".join(allowed) or "none"
        name = variables.HANDLERS.name
        raise Forbidden(field, f"python:{path[:80]} is not listed in {name} ({listed}). Add it there to allow it.")
