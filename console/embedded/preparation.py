"""The database and the initial content of a plant: `python -m console.embedded.preparation [--seed]`.

The launcher runs it in a separate process: all of Django, which it imports, ends with it, while the launcher runs as
long as the plant. It prints MIGRATED in a line when the pages may be started, and with --seed the first login's
password in another line, which is empty once it has been changed.
"""

import subprocess
import sys
from types import TracebackType
from typing import Self

from common.files import keep_private
from console import release
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
    """Migrate the database, and collect the static files."""
    from django import setup
    from django.core.management import call_command

    setup()
    refuse_a_newer_database()
    call_command("migrate", verbosity=0, interactive=False)
    call_command("collectstatic", verbosity=0, interactive=False)


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
