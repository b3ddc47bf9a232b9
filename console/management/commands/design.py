"""`manage.py design NAME`: gains, models, and promises, by the names of the contract."""

from typing import Any

from django.core.management.base import CommandParser

from common.errors import BadInput
from common.parsing import parse_option_whole_number
from console.management.document import JsonCommand, read_document
from controllers.design.identify import identify
from controllers.design.request import DESIGNS
from workers.lab.trace_files import read_columns

# The designs of the contract in its order; those neither in DESIGNS nor read from a CSV file are promised.
CONTRACT_DESIGNS = ("place", "check", "identify", "lqr", "network", "tcc", "selectivity")
FROM_CSV = "identify"


class Command(JsonCommand):
    help = "Compute gains or a model from a JSON document. identify reads a CSV file with columns u and y."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help=", ".join(CONTRACT_DESIGNS))
        parser.add_argument("file", metavar="FILE|-", nargs="?", default="-")
        parser.add_argument(
            "--delay",
            type=parse_option_whole_number,
            default=0,
            help=("identify: samples until u takes effect, 0 to 10"),
        )
        parser.add_argument("--json", action="store_true", help="print JSON on a terminal, too")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        name = options["name"]
        if name == FROM_CSV:
            return identify_model(options["file"], options["delay"])
        if name in DESIGNS:
            return DESIGNS[name](read_document(options["file"]))
        if name in CONTRACT_DESIGNS:
            raise BadInput(
                "NAME", f"design {name} is not available yet. Choose one of {', '.join(DESIGNS)}, {FROM_CSV}."
            )
        raise BadInput("NAME", f"design {name} is unknown. Choose one of {', '.join(CONTRACT_DESIGNS)}.")


def identify_model(path: str, delay: int) -> dict[str, Any]:
    """Return the model of a CSV file's columns u and y. Raises `BadInput` that names column, line, or option."""
    if not 0 <= delay <= 10:
        raise BadInput("--delay", f"must be 0 to 10, not {delay}")
    u, y = read_columns(path, ("u", "y"))
    model = identify(u, y, delay)
    return {
        "a": model.a,
        "b": model.b,
        "residual_std": model.residual_std,
        "r2": model.r2,
        "samples": model.samples,
        "offset": model.c,
        "delay": delay,
    }
