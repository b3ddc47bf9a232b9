"""The calls that set tasks: an HTTP request, a command, or the `/scale` of a Kubernetes workload.

`$tasks` is replaced by the new number of tasks, `$before` by the former number, and `$change` by the difference (in
`hold`, `$seconds` by the duration); nothing else is replaced. A value of a body that is `$tasks` alone becomes a
number. A command is a list of arguments and never goes through a shell. Its beginning must be allowed by an
administrator (WEIR_PLANT_COMMANDS), its environment contains none of Weir's secrets, and it ends after COMMAND_SECONDS.
"""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import orjson

from common import checks
from common import environment as variables
from common.errors import BadInput, Forbidden
from workers.host import egress
from workers.host.environment import select_needed
from workers.pipeline.declaration import fields
from workers.plants.foreign.declared import servers
from workers.plants.foreign.declared.servers import Login, ServerClients, read_login
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

COMMAND_SECONDS = 10.0
MAX_ARGUMENTS, MAX_ARGUMENT, MAX_BODY = 32, 500, 8_000
SHOWN_CHARACTERS = 300
METHODS = ("POST", "PUT", "PATCH", "DELETE", "GET")
PLACE = re.compile(r"\$(tasks|before|change|seconds)\b")
JSON, MERGE = "application/json", "application/merge-patch+json"


@dataclass(frozen=True)
class TaskOrder:
    """A change from `before` to `tasks`. seconds: how long the plant's own controllers are to be held."""

    before: int = 0
    tasks: int = 0
    seconds: int = 0

    def put_in(self, text: str) -> str:
        """Return the text with its placeholders replaced."""
        return PLACE.sub(lambda found: str(self._resolve_value(found[1])), text)

    def fill(self, value: object) -> object:
        """Replace the placeholders within a body."""
        if isinstance(value, str):
            alone = PLACE.fullmatch(value)
            return self._resolve_value(alone[1]) if alone else self.put_in(value)
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if isinstance(value, dict):
            return {key: self.fill(item) for key, item in value.items()}
        return value

    def _resolve_value(self, name: str) -> int:
        return self.tasks - self.before if name == "change" else int(getattr(self, name))


@dataclass(frozen=True)
class HttpCall:
    """An HTTP request. body: None for none."""

    method: str
    url: str
    body: object = None
    login: Login = field(default_factory=Login)
    content_type: str = JSON

    def describe(self, order: TaskOrder) -> str:
        """Return what would be sent; a secret is shown as the name of its variable."""
        body = "" if self.body is None else f" {orjson.dumps(order.fill(self.body)).decode()}"
        return f"{self.method} {order.put_in(self.url)}{body}"

    def has_placeholder(self, *names: str) -> bool:
        texts = (self.url, orjson.dumps(self.body).decode())
        return any(found[1] in names for text in texts for found in PLACE.finditer(text))

    def make(self, order: TaskOrder, clients: ServerClients) -> None:
        """Make the call. Raise `PlantUnavailable`, `InvalidPlantResponse`, or `BadInput` for a missing secret."""
        client, path = clients.resolve(order.put_in(self.url), self.login)
        content = None if self.body is None else orjson.dumps(order.fill(self.body))
        status, answer = client.send(self.method, path, content, self.content_type)
        if not 200 <= status < 300:
            said = " ".join(answer[:SHOWN_CHARACTERS].decode(errors="replace").split())
            raise InvalidPlantResponse(f"{client.name}: {self.method} {self.url} returned {status}: {said}")


@dataclass(frozen=True)
class CommandCall:
    """A command. arguments: the path of the program first."""

    arguments: tuple[str, ...]

    def describe(self, order: TaskOrder) -> str:
        return " ".join(self._fill(order))

    def has_placeholder(self, *names: str) -> bool:
        return any(found[1] in names for text in self.arguments for found in PLACE.finditer(text))

    def make(self, order: TaskOrder, clients: ServerClients) -> None:
        """Run the command. Raise `Forbidden` if it is not allowed, `PlantUnavailable`, and `InvalidPlantResponse`."""
        arguments = self._fill(order)
        check_allowed(arguments, "command")
        try:
            status, said = _run(arguments)
        except subprocess.TimeoutExpired:
            raise PlantUnavailable(f"{arguments[0]} took more than {COMMAND_SECONDS:g} s and was stopped.") from None
        except OSError as error:
            raise InvalidPlantResponse(f"{arguments[0]} can't be started: {error.strerror}.") from None
        if status != 0:
            raise InvalidPlantResponse(f"{arguments[0]} ended with exit status {status}: {said or 'no error output'}")

    def _fill(self, order: TaskOrder) -> list[str]:
        return [order.put_in(argument) for argument in self.arguments]


Call = HttpCall | CommandCall


def check_allowed(arguments: Sequence[str], where: str) -> None:
    """Raise `Forbidden` unless an administrator allows commands with this beginning.

    The last allowed word may be the beginning of an argument, such as worker@. Words after that can't be options,
    because an option may turn one command into another.
    """
    allowed = [part.split() for part in variables.PLANT_COMMANDS.get_text().split(";") if part.strip()]
    if not any(_begins(arguments, words) for words in allowed):
        # The most common mistake: an allowed word allows no option after it.
        options = ", ".join(argument for argument in arguments[1:] if argument.startswith("-"))
        hint = f"; each option must be listed there ({options[:200]})" if options else ""
        raise Forbidden(
            where,
            f"calls {arguments[0][:200]}, which is not allowed with these arguments; an administrator can"
            f" allow it in {variables.PLANT_COMMANDS.name}{hint}",
        )


def _begins(arguments: Sequence[str], words: Sequence[str]) -> bool:
    *first, last = words
    given = list(arguments[: len(words)])
    if len(given) < len(words) or given[:-1] != first:
        return False
    if any(argument.startswith("-") for argument in arguments[len(words) :]):
        return False
    return given[-1] == last or (len(words) > 1 and last[-1:] in "@=:/-" and given[-1].startswith(last))


def _run(arguments: Sequence[str]) -> tuple[int, str]:
    """Return (exit status, the beginning of the error output)."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=select_needed(variables.PROCESS),
            start_new_session=True,
        )
        try:
            status = process.wait(COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # together with the processes that it has started
            process.wait()
            raise
        said.seek(0)
        return status, " ".join(said.read(SHOWN_CHARACTERS).decode(errors="replace").split())


def read_call(document: object, where: str) -> Call:
    """Read {http: {method, url, body}}, {command: […]}, or {scale: url}. Raise `BadInput`."""
    kinds = ("http", "command", "scale")
    given = [kind for kind in kinds if isinstance(document, Mapping) and kind in document]
    if len(given) != 1:
        raise BadInput(where, f"must have exactly one of {', '.join(kinds)}")
    if given[0] == "command":
        document = fields.check_mapping(document, where, ("command",), required=())
        return _read_command_call(document["command"], f"{where}.command")
    if given[0] == "scale":
        document = fields.check_mapping(document, where, ("scale", *servers.KEYS), required=())
        url = fields.validate_text(document["scale"], f"{where}.scale", 1_000)
        egress.check_url(url, f"{where}.scale")
        body = {"spec": {"replicas": "$tasks"}}
        return HttpCall("PATCH", url, body, read_login(document, where), MERGE)
    document = fields.check_mapping(document, where, ("http",), required=())
    return _read_http_call(document["http"], f"{where}.http")


def _read_http_call(document: object, where: str) -> HttpCall:
    keys = ("method", "url", "body", "content_type", *servers.KEYS)
    document = fields.check_mapping(document, where, keys, required=("url",))
    method = checks.accept_choice(METHODS).validate(document.get("method", "POST"), f"{where}.method")
    url = fields.validate_text(document["url"], f"{where}.url", 1_000)
    try:
        parts, server = urlsplit(PLACE.sub("1", url)), urlsplit(url).netloc
    except ValueError:  # brackets around something that is not an IPv6 address
        raise BadInput(f"{where}.url", "must be an address that starts with http:// or https://.") from None
    egress.check_url(parts.geturl(), f"{where}.url")
    if PLACE.search(server):
        raise BadInput(f"{where}.url", "must not have a placeholder, such as $tasks, in the host or port")
    body = document.get("body")
    if body is not None and len(orjson.dumps(body)) > MAX_BODY:
        raise BadInput(f"{where}.body", f"must have at most {MAX_BODY} bytes as JSON")
    kind = checks.accept_choice((JSON, MERGE)).validate(document.get("content_type", JSON), f"{where}.content_type")
    return HttpCall(method, url, body, read_login(document, where), kind)


def _read_command_call(document: object, where: str) -> CommandCall:
    arguments = [
        fields.validate_text(
            str(argument) if isinstance(argument, int) else argument, f"{where}[{place}]", MAX_ARGUMENT
        )
        for place, argument in enumerate(fields.validate_items(document, where, most=MAX_ARGUMENTS))
    ]
    if not PurePosixPath(arguments[0]).is_absolute() or PLACE.search(arguments[0]):
        raise BadInput(f"{where}[0]", "must be the full path of a program, such as /usr/bin/systemctl")
    for place, argument in enumerate(arguments):
        if argument.startswith("$change"):
            raise BadInput(
                f"{where}[{place}]", "must have $change after a word, such as --by=$change, because it may be negative"
            )
    check_allowed(arguments, where)
    return CommandCall(tuple(arguments))
