"""`manage.py top`: the plant in this terminal, of this console or of another one (--url).

The token of another console comes from the environment: all users of a host can see a process's arguments.
"""

import sys
from typing import Any

from django.core.management.base import CommandParser

from common import environment as variables
from common.errors import BadInput
from console.api.request.calls import Calls, InProcess, RemoteConsole
from console.management.commands.weir import find_acting_user
from console.management.one_line import OneLineCommand

TIMEOUT_SECONDS = 4.0  # of a terminal that asks each second


class Command(OneLineCommand):
    help = "Show the plant in this terminal: state, incidents, loops, and queues. Hold loops, pause queues."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--as", dest="user", help="user to act as (default: the first administrator)")
        parser.add_argument(
            "--url", default=variables.URL.get_text(), help=("address of another console, with the token in WEIR_TOKEN")
        )

    def handle(self, *args: Any, **options: Any) -> None:
        # Imported here: no other command needs the terminal library.
        from console.terminal.app import Top

        try:
            calls, source = build_console_calls(options)
            if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
                raise BadInput("top", "needs a terminal; for programs: manage.py weir live.")
        except BadInput as error:
            self.stderr.write(" ".join(str(error).split()))
            sys.exit(2)
        Top(calls, source).run()


def build_console_calls(options: dict[str, Any]) -> tuple[Calls, str]:
    """Return the calls of the console, and its name. Raises `BadInput`."""
    if options["url"]:
        token = variables.TOKEN.get_text()
        if not token:
            raise BadInput(variables.TOKEN.name, "is missing; another console requires a token.")
        return RemoteConsole(options["url"], token, TIMEOUT_SECONDS), options["url"]
    actor = find_acting_user(options["user"])
    return InProcess(actor), f"this console, as {actor.name.removeprefix('manage.py:')}"
