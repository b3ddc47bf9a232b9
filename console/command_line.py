"""`weir run`: a plant on this machine, as ./run does; `weir WORD …`: the command WORD of manage.py."""

import sys
from importlib import import_module

from django.core.management import execute_from_command_line
from django.db import InterfaceError, OperationalError

from common import environment as variables
from common.errors import BadInput
from console import release
from console.embedded.running import choose_plant, describe_plant_choice

# They only use their input, so they don't load Django's applications.
PLAIN = ("decide", "design", "lab", "match", "split")
DATABASE_REMEDY = (
    "Start the database, check DATABASE_URL, and run `manage.py migrate` if a table is missing."
    " `manage.py doctor` finds other problems; --traceback shows the failing code."
)
RUN = "weir run [--port N] [--data DIR]   starts a plant on this machine; see weir run --help.\n"


def main() -> int:
    """Run the program `weir`."""
    words = sys.argv[1:]
    if words == ["--version"]:
        sys.stdout.write(f"weir {release.read_version()}\n")
    elif words[:1] == ["run"]:
        # It imports the supervision of a plant, which no other word needs.
        from console.embedded import launch

        return launch.main(words[1:])
    else:
        if words in ([], ["help"], ["--help"]):
            sys.stdout.write(RUN)
        manage()
    return 0


def manage() -> None:
    """Run manage.py. CONTRACT: one JSON document out, exit 2 for bad input. Exit 1 if no database answers."""
    variables.PROCESS.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    if sys.argv[1:2] and sys.argv[1] in PLAIN:
        import_module(f"console.management.commands.{sys.argv[1]}").Command().run_from_argv(sys.argv)
    else:
        _find_plant()
        try:
            execute_from_command_line(sys.argv)
        except (OperationalError, InterfaceError) as error:
            if "--traceback" in sys.argv:
                raise
            why = str(error).strip().partition("\n")[0]
            problem = f"the database rejected the query, or did not respond ({why})"
            sys.exit(f"{sys.argv[1]}: {problem}. {DATABASE_REMEDY} {describe_plant_choice()}")


def _find_plant() -> None:
    """Use the running plant, and say so; exit with 2 if several run."""
    try:
        chosen = choose_plant()
    except BadInput as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    if chosen is not None:
        sys.stderr.write(f"Using the running plant in {chosen}.\n")
