"""`manage.py assistant`: the MCP server over standard input and output, for another console."""

import sys
from typing import Any

from django.core.management.base import CommandParser

from common import environment as variables
from common.errors import BadInput
from console.management.one_line import OneLineCommand


class Command(OneLineCommand):
    help = "Serve an assistant over standard input and output (MCP), with the token in WEIR_TOKEN."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--url", default=variables.URL.get_text(), help="address of the console")

    def handle(self, *args: object, **options: Any) -> None:
        from console.api.request.calls import RemoteConsole
        from console.assistants.server import build_server
        from console.assistants.tools import Tools

        token = variables.TOKEN.get_text()
        for name, value in (("--url", options["url"]), (variables.TOKEN.name, token)):
            if not value:
                self.stderr.write(f"{name}: is missing; an assistant needs a console's address and a token.")
                sys.exit(2)
        try:
            remote = RemoteConsole(options["url"], token)
        except BadInput as error:
            self.stderr.write(str(error))
            sys.exit(2)
        build_server(Tools(remote)).run("stdio")
