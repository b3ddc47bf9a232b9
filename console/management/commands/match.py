"""`manage.py match`: the matches of a pattern in a set of events."""

from typing import Any

from django.core.management.base import CommandParser

from console.management.document import JsonCommand, read_document
from workers.pipeline.matching.match_request import answer


class Command(JsonCommand):
    help = (
        'Match a pattern. Input: {"pattern": "SEQ(A; B)", "within_seconds": 10, "events": [...]}. '
        "Output: the IDs of each match, and its measures if the input has some."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE|-", nargs="?", default="-")
        parser.add_argument("--json", action="store_true", help="print JSON on a terminal, too")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        return answer(read_document(options["file"]))

    def format_output(self, document: dict[str, Any]) -> str:
        measures = document.get("measures", [{}] * len(document["matches"]))
        lines = [
            " ".join([*ids, *(f"{name}={value}" for name, value in values.items())])
            for ids, values in zip(document["matches"], measures, strict=True)
        ]
        return "\n".join([*lines, "1 match" if len(lines) == 1 else f"{len(lines)} matches"])
