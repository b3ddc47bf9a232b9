"""A Prometheus server as a plant that is only observed.

Its jobs are operators, their targets that are up tasks. Both are numbers that it counts itself. Its list of all
targets, which may have megabytes, is requested only to show those that are down.

What it measures becomes a sensor in a declared plant (`declared`), which also declares the calls.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from controllers.framework.reason import format_count
from controllers.parallelism.measured_topology import MAX_TASKS, MeasuredOperator, MeasuredTopology
from workers.documents.plants import FoundPlant, PlantSection
from workers.plants.foreign.client import PlantClient
from workers.plants.foreign.kind import Adapter, AdapterKind, PlantAddress, describe_topology
from workers.plants.foreign.prometheus_client import PrometheusClient
from workers.plants.foreign.redaction import remove_logins
from workers.plants.plant import InvalidPlantResponse

WINDOW_SECONDS = 15.0
UP, ALL = "sum by (job) (up)", "count by (job) (up)"
ONLY_MEASURES = "Prometheus only provides metrics; to set tasks, attach a declared plant"
JOB, NO_JOB = "job", "none"
MAX_JOBS, MAX_DOWN, MAX_ERROR, MAX_TEXT = 100, 50, 200, 2_000
NEEDS = (
    "To control a system by its metrics, attach a declared plant with PromQL sensors and the calls that set"
    " tasks. Examples are included."
)


class PrometheusPlant(Adapter):
    """One server. It scrapes about every 15 s: more frequent observations bring nothing new."""

    observe_seconds = 15.0

    def __init__(self, client: PlantClient, clock: Callable[[], float] = time.time) -> None:
        self._client, self._clock, self.prometheus = client, clock, PrometheusClient(client)
        self.left_out: list[str] = []  # jobs beyond MAX_JOBS at the last observation

    def get_topology(self) -> MeasuredTopology:
        """Return an operator for each of the first MAX_JOBS jobs. Raise `PlantUnavailable`, `InvalidPlantResponse`."""
        up, targets = self.prometheus.collect_values(UP, JOB), self.prometheus.collect_values(ALL, JOB)
        operators = {}
        self.left_out = [name or NO_JOB for name in sorted(targets)[MAX_JOBS:]]
        for name, count in sorted(targets.items())[:MAX_JOBS]:
            most = min(MAX_TASKS, max(0, round(count or 0.0)))
            tasks = min(most, max(0, round(up.get(name) or 0.0)))
            shown = name or NO_JOB
            operators[shown] = MeasuredOperator(shown, "operator", tasks, 0, most, ONLY_MEASURES)
        return MeasuredTopology(self._client.name, self._clock(), WINDOW_SECONDS, operators)

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """Raise `BadInput` for every task."""
        self.get_topology().check_tasks(tasks)

    def list_sections(self) -> Sequence[PlantSection]:
        """Return jobs beyond the maximum of operators, and targets that are down, if the server shows them.

        Raise `PlantUnavailable` and `InvalidPlantResponse` if nothing can be read.
        """
        more = [self._build_unshown_jobs_section()] if self.left_out else []
        try:
            return [*more, self._build_down_targets_section()]
        except InvalidPlantResponse:
            if more:
                return more
            raise

    def _build_unshown_jobs_section(self) -> PlantSection:
        return PlantSection(
            title="Jobs not shown",
            about=f"{len(self.left_out)} jobs; only the first {MAX_JOBS} by name are operators",
            columns=["Job"],
            rows=[[name[:MAX_ERROR]] for name in self.left_out[:MAX_DOWN]],
        )

    def _build_down_targets_section(self) -> PlantSection:
        targets = self.prometheus.list_targets()
        down = [target for target in targets if target.get("health") != "up"]
        rows: list[list[str | float | None]] = [
            [_get_job(target), _mask_addresses(target.get("scrapeUrl")), _mask_addresses(target.get("lastError"))]
            for target in down[:MAX_DOWN]
        ]
        return PlantSection(
            title="Down targets",
            about=f"{len(down)} of {len(targets)}",
            columns=["Job", "Address", "Last error"],
            rows=rows,
            empty="All targets are up.",
        )

    def close(self) -> None:
        self._client.close()


def _mask_addresses(text: Any) -> str:
    """Mask logins: scraped addresses may contain them, and so may their errors."""
    return remove_logins(str(text or "")[:MAX_TEXT])[:MAX_ERROR]


def _get_job(target: Mapping[str, Any]) -> str:
    labels = target.get("labels")
    return str(labels.get(JOB, NO_JOB) if isinstance(labels, dict) else NO_JOB)


def _jobs(plant: PrometheusPlant, topology: MeasuredTopology) -> str:
    count = len(topology.operators)
    return f"the first {count} of {count + len(plant.left_out)} jobs" if plant.left_out else format_count(count, "job")


def inspect(address: PlantAddress) -> FoundPlant:
    """Return the version, targets, and metrics. Raise `PlantUnavailable` and `InvalidPlantResponse`."""
    plant = PrometheusPlant(address.create_client())
    try:
        topology, version = plant.get_topology(), plant.prometheus.read_version()
        metrics = plant.prometheus.list_metric_names()
        up = sum(operator.parallelism for operator in topology.operators.values())
        inspected = describe_topology(f"Prometheus {version}", topology, [NEEDS])
        return FoundPlant(
            what=inspected.what,
            said=[
                f"Targets up: {up} ({_jobs(plant, topology)}).",
                f"It has {len(metrics)} metrics; a declared plant can use any PromQL query as a sensor.",
            ],
            parts=inspected.parts,
            needs=inspected.needs,
        )
    finally:
        plant.close()


ADAPTER = AdapterKind(
    name="prometheus",
    title="Prometheus",
    example="http://prometheus.example:9090",
    make=lambda address: PrometheusPlant(address.create_client()),
    inspect=inspect,
    steers=False,
)
