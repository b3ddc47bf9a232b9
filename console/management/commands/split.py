"""`manage.py split`: the sequence of containers that smooth weighted round robin chooses."""

from typing import Any

from django.core.management.base import CommandParser

from console.management.document import JsonCommand, read_document
from queues.publishing.splitter import split_request


class Command(JsonCommand):
    help = 'Split events by points. Input: {"points": {"a": 5, "b": 1}, "count": 6}. Output: {"sequence": [...]}.'

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE|-", nargs="?", default="-")
        parser.add_argument("--json", action="store_true", help="print JSON on a terminal, too")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        return split_request(read_document(options["file"]))
