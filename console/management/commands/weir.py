"""`manage.py weir …`: everything the pages do, over the API: in this process, or of another console."""

import argparse
import json
import sys
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import orjson
from django.contrib.auth.models import User
from django.core.management.base import CommandParser

from common import environment as variables
from common.errors import BadInput
from console.accounts.access import Actor, find_user_role, get_user_queues
from console.api.request.calls import InProcess, NoAnswer, RemoteConsole, format_refusal_message
from console.api.v1 import api
from console.management.one_line import OneLineCommand, format_plain_line, format_plain_text
from console.management.operations import Operation, find_operation, list_operations

EXPORT = "/export"  # end of the address of an operation whose answer is as long as its export


class Command(OneLineCommand):
    help = "Run console operations. Without a command: list all commands. With --url: use another console."
    requires_system_checks = []  # as for `JsonCommand`

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--as", dest="user", help="user to act as (default: the first administrator)")
        parser.add_argument("--url", default=variables.URL.get_text(), help="address of another console")
        parser.add_argument(
            "--token",
            default=variables.TOKEN.get_text(),
            help="API token for --url; prefer WEIR_TOKEN, since all users of this host can see arguments",
        )
        parser.add_argument("words", nargs=argparse.REMAINDER, help="command, then --name value options")

    def handle(self, *args: object, **options: Any) -> None:
        known_operations = list_operations(api.get_openapi_schema(path_prefix="/api/"))
        try:
            words, given = split(options["words"])
            if not words:
                self.stdout.write(format_listing(known_operations))
                return
            operation = find_operation(known_operations, words)
            query, body = operation.read(given)
            status, pieces = self._ask(operation, operation.build_path(words), query, body, options)
        except BadInput as error:
            self._refuse(str(error), 2)
        except NoAnswer as error:
            self._refuse(f"--url: {error}", 1)
        if status >= 300:
            self._refuse(format_refusal_message(status, b"".join(pieces)), 2 if status < 500 else 1)
        for piece in pieces:
            self.stdout.write(format_answer(piece, self.stdout.isatty()), ending="")
        self.stdout.write("")

    def _ask(
        self, operation: Operation, address: str, query: dict[str, Any], body: dict[str, Any], options: dict[str, Any]
    ) -> tuple[int, Iterable[bytes]]:
        path = f"{address}?{urlencode(query, doseq=True)}" if query else address
        content = json.dumps(body).encode() if operation.body or body else b""
        # With a key, so that a repetition has no further effect.
        key = "" if operation.method == "GET" else uuid.uuid4().hex
        if options["url"]:
            console = RemoteConsole(options["url"], options["token"], has_end=not operation.path.endswith(EXPORT))
            return console.send(operation.method, path, content, key)
        return InProcess(find_acting_user(options["user"])).send(operation.method, path, content)

    def _refuse(self, text: str, status: int) -> None:
        self.stderr.write(format_plain_text(text))
        sys.exit(status)


def split(arguments: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Split words, then `--name value` or `--name=value`. Raises `BadInput` for anything else."""
    words, options, rest = [], [], list(arguments)
    while rest and not rest[0].startswith("--"):
        words.append(rest.pop(0))
    while rest:
        name, separator, value = rest.pop(0).partition("=")
        if not name.startswith("--"):
            raise BadInput(name[:40], "is not an option. Write --name value.")
        if not separator:
            if not rest:
                raise BadInput(name, f"requires a value. Write {name} VALUE.")
            value = rest.pop(0)
        options.append((name.removeprefix("--"), value))
    return words, options


def format_listing(operations: Sequence[Operation]) -> str:
    """Return every command with its description."""
    lines = [(" ".join(operation.words), operation.summary) for operation in operations]
    width = max(len(words) for words, _ in lines)
    return "\n".join(f"{words:{width}}  {summary}" for words, summary in lines)


def find_acting_user(username: str | None) -> Actor:
    """Return the user of the console whose role a shell user has here. Raises `BadInput`."""
    users = User.objects.filter(is_active=True).order_by("pk")
    if username:
        user = users.filter(username=username).first()
    else:
        user = next((known_user for known_user in users if find_user_role(known_user) == "administrator"), None)
    if user is None:
        why = f"{username} is not an active user" if username else "no active administrator exists"
        raise BadInput("--as", f"{why}. Name another user.")
    name = f"manage.py:{user.get_username()}"
    role, queues = find_user_role(user), get_user_queues(user)
    return Actor(name=name, role=role, user=user, request_id=uuid.uuid4().hex, queues=queues)


def format_answer(piece: bytes | str, on_terminal: bool) -> str:
    """Return an answer: unchanged for programs; on terminals indented JSON without control sequences."""
    text = piece.decode(errors="replace") if isinstance(piece, bytes) else piece
    if not on_terminal:
        return text
    if text.startswith("{"):
        with suppress(ValueError):  # no JSON, or nested too deeply: unchanged
            text = orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2).decode()
    return "\n".join(format_plain_line(part) for part in text.split("\n"))
