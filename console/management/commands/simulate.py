"""`manage.py simulate`: simulates the control loops on virtual time, with faults, and checks what Weir promises.

A run follows from its seed. After a violation, it prints the shortest schedule of faults that it finds, and exits with
1.
"""

import importlib.util
import subprocess
import sys

from django.core.management.base import CommandParser

from common import environment as variables
from common.parsing import parse_option_number, parse_option_whole_number
from console.management.one_line import OneLineCommand

MAX_SEED = 2**31 - 1
MODULE = "bench.simulation.process"


class Command(OneLineCommand):
    help = "Simulate the control loops on virtual time with faults, and check invariants."
    requires_system_checks = []  # as for `JsonCommand`

    def add_arguments(self, parser: CommandParser) -> None:
        whole, number = parse_option_whole_number, parse_option_number
        parser.add_argument("--seed", type=whole, default=1, help="the first seed; each run has the next one")
        parser.add_argument("--runs", type=whole, help="number of runs; without a limit, one")
        parser.add_argument("--hours", type=number, help="start runs until this many virtual hours are simulated")
        parser.add_argument("--seconds", type=number, help="start runs for this time, s")
        parser.add_argument("--processes", type=whole, default=1, help="runs at a time")
        parser.add_argument("--only", metavar="N,N", help="apply only these faults of the schedule")
        parser.add_argument("--kinds", metavar="KIND,KIND", help="inject only these kinds of faults")
        parser.add_argument("--whole", action="store_true", help="show the whole schedule of a violation")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *arguments: object, **options: object) -> None:
        if importlib.util.find_spec("bench") is None or importlib.util.find_spec("fakeredis") is None:
            self.stderr.write("simulate: needs a checkout of the repository with its development packages")
            sys.exit(2)
        names = ("seed", "hours", "runs", "seconds", "processes", "only", "kinds")
        words = [f"--{name}={options[name]}" for name in names if options[name] is not None]
        words += [f"--{name}" for name in ("whole", "json") if options[name]]
        # The order of sets would differ from process to process.
        environment = {**variables.PROCESS, "PYTHONHASHSEED": "0"}
        self.stdout.flush()
        sys.exit(subprocess.run([sys.executable, "-m", MODULE, *words], env=environment, check=False).returncode)
