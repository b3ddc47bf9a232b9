"""Python programs of a plant in forks of one process, which imports their modules once.

The environment and the settings of the process that forks have no secrets: it loads the settings with the values of
`PLACEHOLDERS`. It keeps the programs' environment in memory. It forks a Python program only after the imports have
ended. A fork gets the environment of its program, and loads the settings again before it runs the program.
"""

import atexit
import ctypes
import gc
import importlib
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from common import environment as variables
from console.embedded.leftovers import STARTED_BY_A_SUPERVISOR
from workers.host.environment import select_needed

logger = logging.getLogger("weir.forks")

SETTINGS = "console.settings"
# Modules that programs run as `python -m MODULE`. Each has `main(arguments)`. They read no settings.
MODULES = ("queues.nodes.agent", "queues.publishing.telemetry")
# Programs that load the settings, and what they import when they start.
SCRIPTS: dict[str, tuple[str, str]] = {
    "manage.py": ("console.command_line", "manage"),
    "celery": ("celery.__main__", "main"),
    "uvicorn": ("uvicorn.main", "main"),
}
IMPORTED = (
    *MODULES,
    "console.urls",
    "console.management.commands.alert",
    "console.management.commands.observe",
    "workers.tasks",
    "celery.bin.celery",
    "celery.bin.beat",
    "celery.bin.worker",
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.concurrency.prefork",
    "celery.concurrency.thread",
    "celery.fixups.django",
    "celery.worker.autoscale",
    "celery.worker.components",
    "celery.worker.consumer",
    "channels.routing",
    "django.core.handlers.asgi",
    "kombu.transport.redis",
    "uvicorn.main",
    "whitenoise.middleware",
    "console.api.ingestion.body_limit",
    "console.assistants.endpoint",
    "console.connections.web_protocols",
    "console.live.consumer",
    "console.web.admission",
    "console.web.lifespan",
    "console.web.problem",
    "console.web.proxies",
    "console.web.traced",
    "workers.coordination.beat",
)
# The settings of the process that forks, in place of secrets and of addresses that can contain secrets.
PLACEHOLDERS = {variables.REDIS_URL.name: variables.LOCAL_CONTROL, variables.SECRET_KEY.name: secrets.token_urlsafe(48)}
# Signals that supervisord handles.
HANDLED = (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR2)


def can_fork() -> bool:
    """Return whether this system supports a fork without a new program. On macOS, libraries don't work after it."""
    return sys.platform == "linux"


def find_program(command: Sequence[str]) -> list[str] | None:
    """Return the part of a command that names a program which can be forked, and its arguments; None otherwise.

    command: with the path of an interpreter or a script, after an optional `nice`.
    """
    words = [*command[3:]] if tuple(command[:2]) == ("nice", "-n") else [*command]
    name = Path(words[0]).name if words else ""
    if name in SCRIPTS:
        return [name, *words[1:]]
    if name.startswith("python") and words[1:2] == ["manage.py"]:
        return words[1:]
    if name.startswith("python") and words[1:2] == ["-m"] and words[2] in MODULES:
        return words[1:]
    return None


def build_parent_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the process that forks: no secrets, and what its settings need.

    `/proc` shows it as the environment of each fork.
    """
    own = select_needed(environment, {variables.DATA.name, "DJANGO_SETTINGS_MODULE"})
    return {**own, **PLACEHOLDERS, STARTED_BY_A_SUPERVISOR: "1"}


def import_programs() -> None:
    """Import what the programs import when they start. If that fails, the programs import it themselves."""
    gc.disable()  # imported objects are never garbage
    try:
        from django.apps import apps
        from django.conf import settings

        variables.PROCESS.setdefault("DJANGO_SETTINGS_MODULE", SETTINGS)
        apps.populate(settings.INSTALLED_APPS)
        for name in IMPORTED:
            importlib.import_module(name)
    except Exception:
        logger.exception("Failed to import the programs. Each program imports its modules when it starts.")
    finally:
        gc.enable()


class ImportedPrograms:
    """Imports the programs in a thread, so that the process can do other work meanwhile.

    done: called when the programs are imported.
    """

    def __init__(self, done: Callable[[], None] = lambda: None) -> None:
        self._done = done
        self._thread = threading.Thread(target=self._import, name="imports")
        self._frozen = False

    def begin(self) -> None:
        self._thread.start()

    def _import(self) -> None:
        import_programs()
        self._done()

    def wait(self) -> None:
        """Wait until the imports have ended, so that their thread holds no lock in a fork."""
        self._thread.join()
        if not self._frozen:
            self._frozen = True
            gc.collect()
            gc.freeze()  # a fork's garbage collector leaves these objects alone, so their pages stay shared


def run_forked(command: Sequence[str], program: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Run a program in this process, a fork, and end the process with its exit code.

    command: the whole command, which `ps` shows.
    """
    code = 1
    try:
        _restore_signals()
        if tuple(command[:2]) == ("nice", "-n"):
            os.nice(int(command[2]))
            command = command[3:]
        show_command(command)
        variables.PROCESS.clear()
        variables.PROCESS.update(environment)
        code = _run(program)
    except SystemExit as ended:
        code = _get_exit_code(ended)
    except BaseException:
        logger.exception("%s failed.", program[0])
    finally:
        _end(code)


def _restore_signals() -> None:
    for number in HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(program: Sequence[str]) -> int:
    if program[0] == "-m":
        sys.argv = [*program[1:]]
        return int(importlib.import_module(program[1]).main(sys.argv[1:]) or 0)
    sys.argv = [*program]
    if program[0] == "uvicorn":
        variables.PROCESS.pop(variables.WITHOUT_PAGES.name, None)  # as `console.asgi` does before it loads settings
    load_settings()
    module, function = SCRIPTS[program[0]]
    main: Callable[[], int | None] = getattr(importlib.import_module(module), function)
    return main() or 0


def load_settings() -> None:
    """Replace the settings of the process that forks with the settings from this process's environment."""
    from django.conf import settings
    from django.db import connections

    module = importlib.reload(importlib.import_module(SETTINGS))
    for name in filter(str.isupper, dir(module)):
        setattr(settings, name, getattr(module, name))
    connections.__dict__.pop("settings", None)  # Django reads them from the settings again


def show_command(command: Sequence[str]) -> None:
    """Write the command over the arguments of this process, as far as they provide space."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start and arg_end of proc(5)
    text = b"\0".join(os.fsencode(word) for word in command)[: end - begin - 1]
    ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)


def _get_exit_code(ended: SystemExit) -> int:
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    sys.stderr.write(f"{ended.code}\n")
    return 1


def _end(code: int) -> NoReturn:
    """End this process as an interpreter does: wait for threads, and call registered exit functions."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
