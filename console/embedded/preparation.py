"""The database and the initial content of a plant: `python -m console.embedded.preparation [--seed]`.

The launcher runs it in a separate process: all of Django, which it imports, ends with it, while the launcher runs as
long as the plant. It prints MIGRATED in a line when the pages may be started, and with --seed the first login's
password in another line, which is empty once it has been changed.
"""

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from common.files import keep_private
from console import release
from console.embedded.prepared_files import PreparedFiles, compute_digest
from console.embedded.supervision import end_with_the_parent

MODULE = "console.embedded.preparation"
MIGRATED, SEED = "migrated", "--seed"


class Preparation:
    """That process, as its parent sees it. Ends with the context, done or not."""

    def __init__(self, *, seed: bool) -> None:
        command = [sys.executable, "-m", MODULE, *([SEED] if seed else [])]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd=release.ROOT,
            text=True,
            start_new_session=True,  # the launcher handles Ctrl-C
            preexec_fn=end_with_the_parent,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if kind is not None:
            self._process.kill()
        self._process.wait()

    def wait_until_migrated(self) -> None:
        """Wait until the database is migrated.

        Raises `SystemExit` with its exit code after an error, which it has printed.
        """
        self._read_line()

    def read_password(self) -> str | None:
        """Return the first login's password, if it is still the first one. Raises `SystemExit` as above."""
        return self._read_line() or None

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise SystemExit(self._process.wait() or 1)
        return line.strip()


def migrate_and_collect() -> None:
    """Migrate the database, and collect the static files, from copies of an earlier plant if there are any."""
    from django import setup

    setup()
    prepared = PreparedFiles(compute_digest())
    migrate(prepared)
    collect(prepared)


def migrate(prepared: PreparedFiles) -> None:
    """Migrate the database. A new SQLite database starts as a copy of a migrated one."""
    from django.conf import settings
    from django.core.management import call_command

    database = settings.DATABASES["default"]
    file = Path(database["NAME"]) if database["ENGINE"].endswith("sqlite3") else None
    is_new = file is not None and not file.exists()
    if file is not None:
        prepared.copy_database(file)
    refuse_a_newer_database()
    call_command("migrate", verbosity=0, interactive=False)
    if file is not None and is_new:
        prepared.keep_database(file)


def collect(prepared: PreparedFiles) -> None:
    """Collect the static files, unless the data folder has those of the installed code."""
    from django.conf import settings
    from django.core.management import call_command

    if prepared.has_collected(settings.WEIR_DATA):
        return
    if not prepared.copy_static_files(settings.STATIC_ROOT):
        call_command("collectstatic", verbosity=0, interactive=False)
    prepared.keep_static_files(settings.WEIR_DATA, settings.STATIC_ROOT)


def refuse_a_newer_database() -> None:
    """Reject a database of a newer version, which this one must not change."""
    from console.storage.migrations import list_newer_migrations

    if newer := list_newer_migrations():
        raise SystemExit(
            f"The database is from a newer version of Weir (migration {newer[0]}). Install that "
            "version. Nothing was changed."
        )


def main(arguments: list[str]) -> int:
    keep_private()
    migrate_and_collect()
    _say(MIGRATED)
    if arguments == [SEED]:
        from console.embedded.seeding import seed_plant

        _say(seed_plant() or "")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
