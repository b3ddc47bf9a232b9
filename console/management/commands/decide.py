"""`manage.py decide LAW`: a law's decision on observations, or a ledger entry decided again."""

from typing import Any

from django.core.management.base import CommandParser

from console.management.document import JsonCommand, read_document
from controllers import catalog, request


class Command(JsonCommand):
    help = (
        'Evaluate a law. Input: {"parameters": {...}, "state": null, "observations": [{...}]}. '
        "Output: decisions and state."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("law", metavar="LAW", help=", ".join(catalog.LAWS))
        parser.add_argument("file", metavar="FILE|-", nargs="?", default="-")
        parser.add_argument("--json", action="store_true", help="print JSON on a terminal, too")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        catalog.get_law(options["law"])  # before the document is read: an unknown law needs none
        return request.answer(options["law"], read_document(options["file"]))

    def format_output(self, document: dict[str, Any]) -> str:
        lines = [f"{_format_action(decision['action'])}  {decision['reason']}" for decision in document["decisions"]]
        return "\n".join(lines)


def _format_action(action: dict[str, Any] | None) -> str:
    return "nothing" if action is None else ", ".join(f"{name} {value}" for name, value in action.items())
