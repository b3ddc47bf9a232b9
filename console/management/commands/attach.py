"""`manage.py attach KIND ADDRESS`: shows what is there and what Weir could control.

With --register it is added. KIND ADDRESS may also be a single file (`attach plant.yaml`), for the kind whose option is
a file. Nothing is changed at the plant. A password is never typed: --secret names the environment variable that has it,
in the console's processes as well as in this one.
"""

import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.management.base import CommandParser

from common.errors import BadInput
from common.stored_document import convert_to_plain
from console.accounts.access import Actor
from console.actions import plant_registration
from console.display.plant_words import describe_discovered_plant
from console.management.document import JsonCommand
from workers.plants.foreign import adapters
from workers.plants.foreign.kind import AdapterKind

FILES = (".yaml", ".yml")
ADVISES = "Its loops start in mode advise: they set nothing until a user sets a loop to auto."


class Command(JsonCommand):
    help = "Inspect an attached plant: what Weir could observe and control there; with --register, add it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "kind", help=("kind of plant, such as flink; a file, such as plant.yaml; or list, for the kinds")
        )
        parser.add_argument("address", nargs="?", default="", help="address, such as http://flink.example:8081")
        parser.add_argument("--option", action="append", default=[], help="option of the kind, such as job=orders")
        parser.add_argument("--secret", default="", help="environment variable with its token or password")
        parser.add_argument(
            "--name", default="", help=("name in Weir; default: its own name, or a name from its address")
        )
        parser.add_argument("--register", action="store_true", help="add the plant after a confirmation")
        parser.add_argument("--yes", action="store_true", help="add the plant without confirmation")
        parser.add_argument("--reason", default="attached", help="reason for the audit log")
        parser.add_argument("--json", action="store_true")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        if options["kind"] == "list":
            return {"kinds": {name: kind.title for name, kind in adapters.list_kinds().items()}}
        kind, url, given = place_of(options["kind"], options["address"], options["option"])
        actor = Actor(name="manage.py", role="administrator")
        inspected = plant_registration.inspect(
            actor, kind.name, url, secret_environment=options["secret"], options=given
        )
        said, name = (
            describe_discovered_plant(inspected),
            options["name"] or inspected.name or derive_plant_name(kind, url),
        )
        document = {"kind": kind.name, "url": url, "name": name, "registered": False, "sentences": said}
        if options["register"] and (options["yes"] or self._ask_for_agreement(said, name)):
            made = plant_registration.register(
                actor,
                name,
                kind.name,
                url,
                secret_environment=options["secret"],
                options=given,
                reason=options["reason"],
            )
            document |= {"registered": True, "left": made.sentence}
        return {**convert_to_plain(inspected), **document}

    def _ask_for_agreement(self, said: list[str], name: str) -> bool:
        """Ask a person to agree; without one, --yes agrees."""
        if sys.stdin is None or not sys.stdin.isatty():
            raise BadInput("--register", "needs a confirmation on a terminal. Use --yes to skip it.")
        self.stderr.write("\n".join(said))
        self.stderr.write(f"Add the plant as {name}? {ADVISES} [y/N] ", ending="")
        return input().strip().lower() in ("y", "yes")

    def format_output(self, document: dict[str, Any]) -> str:
        if "kinds" in document:
            return "\n".join(f"{name:14}{title}" for name, title in document["kinds"].items())
        if document["registered"]:
            end = f"Added as {document['name']}. Observation starts within seconds. {ADVISES}"
            end = "\n".join(filter(None, [end, document["left"]]))
        else:
            end = f"Nothing was changed. To add the plant as {document['name']}, repeat with --register."
        return "\n".join([*document["sentences"], end])


def place_of(kind: str, address: str, options: list[str]) -> tuple[AdapterKind, str, dict[str, str]]:
    """Return the kind, the address, and the options as typed. Raises `BadInput`."""
    given = dict(_parse_option(option) for option in options)
    if kind.endswith(FILES) and not address:
        kind, address = _kind_of_files().name, kind
    plant_kind = adapters.get_kind(kind)
    if plant_kind.file and address:
        return plant_kind, "", {**given, plant_kind.file: _read_text(address)}
    return plant_kind, address, given


def derive_plant_name(kind: AdapterKind, url: str) -> str:
    """Return a name made from the address."""
    host = (urlsplit(url).hostname or "").split(".")[0]
    plain_name = re.sub(r"[^a-z0-9]+", "-", f"{kind.name}-{host}".lower()).strip("-")
    return plain_name[:40]


def _parse_option(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise BadInput("--option", f"must be name=value, not {text[:40]!r}.")
    return name, value


def _kind_of_files() -> AdapterKind:
    kinds = [kind for kind in adapters.list_kinds().values() if kind.file]
    if len(kinds) != 1:
        raise BadInput("KIND", "is missing: write the kind before the file.")
    return kinds[0]


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput("ADDRESS", f"{path} can't be read ({error.strerror}).") from None
    except ValueError:
        raise BadInput("ADDRESS", f"{path} is not UTF-8 text.") from None
