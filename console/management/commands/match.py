"""`manage.py match`: reserved by the contract; it answers when its laws are built."""

from typing import Any

from django.core.management.base import CommandParser

from console.management.document import JsonCommand
from queues.errors import BadInput


class Command(JsonCommand):
    help = "Not yet built."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("arguments", nargs="*")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        raise BadInput("match", "is not yet built; CHANGELOG.md says what is")
