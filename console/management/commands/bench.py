"""`manage.py bench NAME`: a figure, its reference or limit measured in the same run, and their ratio.

With `--strict` it exits with 1 if a figure exceeds its limit: reference `limit_cores` is the maximum of figure `cores`,
or the minimum if the bench names it in `at_least`. A bench without such a limit, requested by name, exits with 1, too.
"""

import importlib
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
from django.core.management.base import CommandParser

from common.errors import BadInput
from common.parsing import parse_option_number, parse_option_whole_number
from console.management.document import JsonCommand

# The folder of `bench` that has it; "" if it is a folder itself.
BENCHES = {
    "splitter": "queues",
    "segment": "queues",
    "brownout": "queues",
    "damage": "queues",
    "durability": "durability",
    "fairness": "queues",
    "pipeline": "pipeline",
    "matcher": "pipeline",
    "windows": "pipeline",
    "rules": "pipeline",
    "executors": "pipeline",
    "shedding": "laws",
    "lqr": "laws",
    "rebalancing": "laws",
    "parallelism": "laws",
    "planner": "laws",
    "tick": "laws",
    "laws": "laws",
    "celery": "",
    "task_history": "celery",
    "retry": "celery",
    "vanish": "",
    "schedules": "schedules",
    "fanout": "console",
    "page": "console",
    "timeline": "console",
    "ledger": "console",
    "snapshot": "console",
    "overload": "plant",
    "soak": "plant",
    "first_minutes": "plant",
    "idle": "plant",
    "jobs": "plant",
    "burst": "plant",
    "ingest": "plant",
    "causes": "",
    "trouble": "",
    "peers": "peers",
}

# Of some benches.
OPTIONS = {
    "rules": ("count", "seed"),
    "task_history": ("count",),
    "retry": ("count",),
    "vanish": ("count",),
    "damage": ("seed",),
    "durability": ("count", "seed"),
    "schedules": ("count", "seed"),
}
MAX_COUNT = 10_000_000
MAX_SECONDS = 43_200  # takes a night
ADDITIONS = 10_000_000
# Installed packages have none: they are measured in a checkout.
HAS_BENCHES = importlib.util.find_spec("bench") is not None


def measure_machine() -> dict[str, Any]:
    """Return the machine and its speed: a host may be three times as slow on another day."""
    began, total = time.perf_counter(), 0
    for number in range(ADDITIONS):
        total += number
    loop_seconds = time.perf_counter() - began
    return {
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "load1": os.getloadavg()[0],
        "loop_seconds": loop_seconds,
    }


def get_module_name(name: str) -> str:
    """Return the module of a bench."""
    return ".".join(filter(None, ("bench", BENCHES[name], name)))


def is_built(name: str) -> bool:
    return HAS_BENCHES and name in BENCHES and importlib.util.find_spec(get_module_name(name)) is not None


def run_bench(name: str, seconds: float, **chosen: int) -> dict[str, Any]:
    """Run a bench. chosen: the options of this bench."""
    if not is_built(name):
        if not HAS_BENCHES:
            raise BadInput("NAME", "needs a checkout of the repository. A wheel has no benchmarks.")
        built = ", ".join(filter(is_built, BENCHES))
        raise BadInput("NAME", f"must be one of {built}. The benchmark {name} is not available yet.")
    measured = importlib.import_module(get_module_name(name)).run(seconds, **chosen)
    return {"name": name, **measured, "machine": measure_machine()}


def get_limits(bench: dict[str, Any]) -> dict[str, float]:
    """Return {figure: its limit}."""
    figures, peers = bench["figures"], bench["peers"]
    return {name: peers[f"limit_{name}"] for name in figures if f"limit_{name}" in peers}


def describe_exceeded_limits(bench: dict[str, Any]) -> Iterator[str]:
    """Return a sentence for each figure that exceeds its limit, or is unknown."""
    for name, limit in get_limits(bench).items():
        figure, at_least = bench["figures"][name], name in bench.get("at_least", ())
        if figure is None or (figure < limit if at_least else figure > limit):
            shown = "unknown" if figure is None else f"{figure:g}"
            most = "least" if at_least else "most"
            yield f"{bench['name']}: {name} is {shown}. It must be at {most} {limit:g}."


class Command(JsonCommand):
    help = "Measure a part of Weir and compare it with a reference or limit."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", metavar="NAME", nargs="*")
        parser.add_argument("--all", action="store_true", help="all available benchmarks")
        parser.add_argument("--seconds", type=parse_option_number, default=3.0, help="duration of each measurement, s")
        counted = (
            "expressions of `rules`, tasks that `task_history` stores or `retry` sends, rounds of `vanish`, or "
            "schedules of `durability` or `schedules`"
        )
        seeded = (
            "seed of the expressions of `rules`, the bits that `damage` flips, or the schedules of `durability` or "
            "`schedules`"
        )
        parser.add_argument("--count", type=parse_option_whole_number, help=counted)
        parser.add_argument("--seed", type=parse_option_whole_number, help=seeded)
        parser.add_argument("--json", action="store_true", help="print JSON on a terminal, too")
        parser.add_argument("--strict", action="store_true", help="exit with 1 if a figure exceeds its limit")

    def handle(self, *args: object, **options: object) -> None:
        self.results: list[dict[str, Any]] = []
        super().handle(*args, **options)
        if not options["strict"]:
            return
        past = [sentence for result in self.results for sentence in describe_exceeded_limits(result)]
        if not options["all"]:
            past += [f"{result['name']}: no figure has a limit." for result in self.results if not get_limits(result)]
        if past:
            self.stderr.write("\n".join(past))
            sys.exit(1)

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        names, seconds = options["names"], options["seconds"]
        if not 0 < seconds <= MAX_SECONDS:
            raise BadInput("--seconds", f"must be more than 0 and at most {MAX_SECONDS:,}")
        if options["all"]:
            names = [name for name in BENCHES if is_built(name)]
        for name in names:
            if name not in BENCHES:
                raise BadInput("NAME", f"must be one of {', '.join(BENCHES)}, not {name}")
        if not names:
            raise BadInput("NAME", f"is required ({', '.join(BENCHES)}), or use --all")
        chosen = {name: options[name] for name in ("count", "seed") if options[name] is not None}
        if not 0 < chosen.get("count", 1) <= MAX_COUNT:
            raise BadInput("--count", f"must be from 1 to {MAX_COUNT:,}")
        for option in chosen:
            having = [name for name, its in OPTIONS.items() if option in its]
            if len(names) != 1 or names[0] not in having:
                raise BadInput(f"--{option}", f"is an option of `bench {' or '.join(having)}` only. Omit it.")
        self.results = [run_bench(name, seconds, **chosen) for name in names]
        return self.results[0] if len(names) == 1 and not options["all"] else {"benches": self.results}

    def format_output(self, document: dict[str, Any]) -> str:
        lines = []
        for bench in document.get("benches", [document]):
            lines += bench.get("notes", [])
            for kind in ("figures", "peers", "ratio"):
                for key, value in bench[kind].items():
                    shown = f"{value:,.3f}" if isinstance(value, float) and abs(value) < 100 else f"{value:,.0f}"
                    lines.append(f"{bench['name']:<12}{kind:<9}{key:<56}{shown:>16}")
        return "\n".join(lines)
