"""`manage.py faults`: inject faults into a separate plant under load, and count their cost."""

import importlib
import importlib.util
from typing import Any

from django.core.management.base import CommandParser

from common import checks
from common.errors import BadInput
from common.parsing import parse_digits, parse_option_whole_number
from console.management.document import JsonCommand

SUITE = "bench.faults.suite"
MAX_SEEDS, MAX_FAULTS, MAX_RATE = 100, 1_000, 1_000_000
COLUMNS = ("count", "within", "p50_seconds", "p95_seconds", "most_seconds", "limit_seconds", "most_load")


class Command(JsonCommand):
    help = (
        "Start a separate plant under load, inject random faults, and report lost, duplicated, and repeated "
        "events and the recovery times. Your plant is not touched."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--seeds", default="1", help="whole numbers, separated by commas; a new plant for each")
        parser.add_argument(
            "--faults", type=parse_option_whole_number, default=12, help="number of faults for each seed"
        )
        parser.add_argument("--only", default="", help="only these kinds, separated by commas: 'kill n1,disk full'")
        parser.add_argument("--rate", type=parse_option_whole_number, default=10_000, help="events per second")
        parser.add_argument("--json", action="store_true", help="print JSON on a terminal, too")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        seeds = _seeds(options["seeds"])
        faults = checks.accept_whole_number(1, MAX_FAULTS).validate(options["faults"], "--faults")
        rate = checks.accept_whole_number(10, MAX_RATE).validate(options["rate"], "--rate")
        if importlib.util.find_spec("bench") is None:
            raise BadInput("faults", "needs a checkout of Weir: the fault injection is not installed with it.")
        only = [name.strip() for name in options["only"].split(",") if name.strip()]
        document: dict[str, Any] = importlib.import_module(SUITE).run(seeds, faults, rate, only)
        return document

    def format_output(self, document: dict[str, Any]) -> str:
        account = document["account"]
        lines = [f"{name.replace('_', ' '):<16}{value:>14,}" for name, value in account.items()]
        lines += ["", f"{'fault':<34}" + "".join(f"{name.replace('_', ' '):>15}" for name in COLUMNS)]
        for row in document["recovery"]:
            lines.append(f"{row['kind']:<34}" + "".join(f"{row[name] or '-':>15}" for name in COLUMNS))
        lines += [f"Not injected here: {name}: {why}." for name, why in document["left_out"].items()]
        return "\n".join(lines)


def _seeds(text: str) -> list[int]:
    """Return the seeds. Raises BadInput."""
    seeds = [parse_digits(word.strip()) for word in text.split(",")]
    if not 0 < len(seeds) <= MAX_SEEDS or None in seeds:
        raise BadInput("--seeds", f"must be 1 to {MAX_SEEDS} whole numbers, such as 1,2,3.")
    return [seed for seed in seeds if seed is not None]
