"""`manage.py lab list` and `lab run`: the scenarios of the simulated plant."""

from typing import Any

from django.core.management.base import CommandParser

from console.management.document import JsonCommand
from queues.errors import BadInput

# scenario → laws, settings, metrics (CONTRACT.md). None is simulated yet: each comes with its law.
SCENARIOS: dict[str, tuple[str, str, str]] = {
    "manager": (
        "worker_rate thesis static",
        "max_rate events_per_worker upper_limit cycles poisson",
        "waiting_5s_post waiting_1s_post worker_runs minimum_runs",
    ),
    "queues": (
        "rebalancing random-one random-25 random-40 greedy-band",
        "configuration noise step",
        "toobusy_node_minutes points_moved moves containers_mean nodes_used_mean minutes_to_clear",
    ),
    "crash": ("rebalancing thesis", "node at restore", "events_lost seconds_to_divert points_restored"),
    "concurrency": (
        "tcc explorer vegas+ vegas++ gradient2 aimd envoy hill-climber",
        "model ratio cpus p",
        "threads utilisation steps",
    ),
    "concurrency-live": (
        "tcc explorer vegas+ vegas++ gradient2 aimd envoy hill-climber",
        "bottleneck competitor servers delay_ms drift",
        "threads_first threads_later utilisation seconds_to_first share peak_fraction_before "
        "peak_fraction_after windows_to_recover",
    ),
    "flow": (
        "pi i-p adaptive spark-pid uncontrolled",
        "delay hog gain_factor starvation noise",
        "settling_samples overshoot minimum_free_mb drops rms",
    ),
    "balance": (
        "lqr round-robin shortest-queue",
        "replicas hog",
        "delay_mean_seconds delay_max_seconds spread",
    ),
    "shedding": (
        "global local random none utility",
        "load_percent balance window_seconds latency_bound_seconds",
        "recall latency_mean_seconds bound_violations utilisation",
    ),
    "elasticity": (
        "joint queueing forecast wt rg ds2 hpa dhalion static-peak",
        "compression pause_seconds interval_seconds bound_seconds",
        "tasks_mean latency_mean_seconds error_rate rescales",
    ),
    "ladder": ("ladder shed-only none", "overload_percent cap", "rungs lost_events seconds_to_normal"),
}


class Command(JsonCommand):
    help = "The lab: scenarios on the simulated plant, our law beside its rivals."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=["list", "run"])
        parser.add_argument("scenario", nargs="?")
        parser.add_argument("--law", action="append", default=[])
        parser.add_argument("--set", action="append", default=[], metavar="key=value")
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--trace", metavar="FILE")
        parser.add_argument("--column", metavar="COL")
        parser.add_argument("--series", metavar="FILE.csv")
        parser.add_argument("--html", metavar="FILE")
        parser.add_argument("--json", action="store_true", help="JSON also on a terminal")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        if options["what"] == "run":
            return self.run_scenario(options["scenario"])
        return {
            "scenarios": {
                name: {
                    "laws": laws.split(),
                    "settings": settings.split(),
                    "metrics": metrics.split(),
                    "ready": False,
                }
                for name, (laws, settings, metrics) in SCENARIOS.items()
            }
        }

    def run_scenario(self, name: str | None) -> dict[str, Any]:
        if name not in SCENARIOS:
            raise BadInput("SCENARIO", f"no scenario is called {name}; there are {', '.join(SCENARIOS)}")
        raise BadInput("SCENARIO", f"{name} is not yet simulated; lab list says which are ready")

    def human(self, document: dict[str, Any]) -> str:
        rows = document["scenarios"].items()
        return "\n".join(
            f"{name:<18}{'ready' if row['ready'] else 'not yet':<9}{' '.join(row['laws'])}"
            for name, row in rows
        )
