"""The supervisor of `./run`: `python -m console.embedded.forking_supervisor ENVIRONMENT IMPORTED ARGUMENTS…`.

It is supervisord, except that it forks the plant's Python programs (`console.embedded.forked_programs`) instead of
starting an interpreter for each one. A fork starts in a fifth of the time, and shares the memory of the imported
modules. Everything else stays the same: supervisord restarts processes, and writes their logs. It starts programs that
can't be forked as usual.

ENVIRONMENT: the number of an open file with the environment of the programs, as JSON. IMPORTED: the number of a pipe
that is closed when the programs are imported. The last argument is as long as the longest command: a fork overwrites
the arguments with its command.
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from supervisor.options import ServerOptions
from supervisor.supervisord import go

from console.embedded.forked_programs import ImportedPrograms, find_program, run_forked

_ADDED_PREFIX = "SUPERVISOR_"  # variables that supervisord adds to the environment of a program


class ForkingOptions(ServerOptions):  # type: ignore[misc]  # it has no types
    """The system functions that supervisord calls."""

    def __init__(self, environment: Mapping[str, str], programs: ImportedPrograms) -> None:
        super().__init__()
        self._environment, self._programs = environment, programs

    def check_execv_args(self, filename: str, argv: list[str], st: Any) -> None:
        """Check a command before the fork. A program to fork waits until it is imported."""
        super().check_execv_args(filename, argv, st)
        if find_program(argv) is not None:
            self._programs.wait()

    def execve(self, filename: str, argv: list[str], env: Mapping[str, str]) -> None:
        """Run a command in the forked process."""
        added = {name: value for name, value in env.items() if name.startswith(_ADDED_PREFIX)}
        environment = {**self._environment, **added}
        program = find_program(argv)
        if program is None:
            os.execve(filename, argv, environment)
        run_forked(argv, program, environment)


def main(arguments: list[str]) -> None:
    source, imported, *own, _room = arguments
    with os.fdopen(int(source)) as file:
        environment = json.load(file)
    programs = ImportedPrograms(lambda: os.close(int(imported)))
    programs.begin()
    options = ForkingOptions(environment, programs)
    options.realize(own)
    options.first, options.test = True, False
    go(options)
    options.close_httpservers()
    options.close_logger()


if __name__ == "__main__":
    main(sys.argv[1:])
