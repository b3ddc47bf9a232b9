"""A Heron topology, by its tracker (REST) and its command line.

**Not run against a live cluster.** It is tested only against the replies that Heron's documentation
describes.

The tracker gives plans and the per-minute metrics of every instance (Stutz, 6.2): `__execute-count`, `__emit-count`,
`__ack-count`, `__fail-count` are counted per stream, `__execute-latency` and `__complete-latency` are nanoseconds.
Values that Heron doesn't measure are approximated as there: the input of a bolt is what the components before it emit
to its streams, its service time is its execute latency, and variances are those of the minutes. An instance that was
just started reports only some minutes, which represent all of them.

`heron update CLUSTER/ROLE/ENVIRON TOPOLOGY --component-parallelism=NAME:TASKS …` sets tasks; Heron restarts what it
must. The program is `heron` on the PATH, or the value of WEIR_HERON: never a value from the console's database.
"""

import math
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any

from common import environment as variables
from common.errors import BadInput
from common.parsing import parse_measured_number
from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from workers.host.environment import select_needed
from workers.plants.foreign.client import PlantClient
from workers.plants.foreign.kind import Adapter, AdapterKind, PlantOption
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

WINDOW_SECONDS, MINUTE_SECONDS = 180, 60
WINDOW_MINUTES = WINDOW_SECONDS // MINUTE_SECONDS
UPDATE_SECONDS = 120.0
MAX_TASKS = 256
MAX_MESSAGE = 300
NANOSECOND = 1e-9
# Environment variables that its command line, and the schedulers behind it, read.
ENVIRONMENT_PREFIXES = ("HADOOP_", "HERON_", "KUBECONFIG", "YARN_")
NOT_SET = "a spout, which only supplies events"
Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]
Timeline = Mapping[str, Mapping[str, Mapping[str, float]]]  # metric → instance → minute → value


@dataclass(frozen=True)
class Component:
    """A spout or bolt: its output streams, its inputs (component and stream), its instances in order."""

    name: str
    outputs: tuple[str, ...]
    inputs: tuple[tuple[str, str], ...]
    instances: tuple[str, ...]

    @property
    def is_spout(self) -> bool:
        return not self.inputs


class HeronPlant(Adapter):
    """One topology of one tracker. options: cluster, role, environ, topology."""

    def __init__(
        self,
        client: PlantClient,
        options: Mapping[str, str],
        run: Run | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._clock, self._run = client, clock, run or update
        self._cluster, self._role = options.get("cluster", ""), options.get("role", "")
        self._environ, self._topology = options.get("environ") or "default", options.get("topology", "")

    def get_topology(self) -> MeasuredTopology:
        """Return the topology of the last WINDOW_SECONDS. Raise `PlantUnavailable` and `InvalidPlantResponse`."""
        components = self._read_components()
        timelines = {component.name: self._read_timeline(component) for component in components}
        emitted = {
            component.name: _sum_metric(timelines[component.name], "__emit-count", component)
            for component in components
        }
        operators = {
            component.name: _build_operator(component, timelines[component.name], emitted) for component in components
        }
        links = tuple(
            Link(before, component.name)
            for component in components
            for before in dict.fromkeys(name for name, _ in component.inputs)
        )
        return MeasuredTopology(self._client.name, self._clock(), float(WINDOW_SECONDS), operators, links)

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """Set tasks by `heron update`, only if they differ. Raise as `Elastic` says."""
        components = {component.name: component for component in self._read_components()}
        operators = {name: _build_operator(each, {}, {}) for name, each in components.items()}
        checked = MeasuredTopology(self._client.name, 0.0, 1.0, operators).check_tasks(tasks)
        wanted = {name: n for name, n in checked.items() if n != len(components[name].instances)}
        if not wanted:
            return
        place = f"{self._cluster}/{self._role}/{self._environ}"
        counts = [f"--component-parallelism={name}:{count}" for name, count in wanted.items()]
        try:
            done = self._run(["update", place, self._topology, *counts])
        except FileNotFoundError as error:
            raise InvalidPlantResponse(f"{self._client.name}: the program heron was not found ({error}).") from error
        except OSError as error:
            raise InvalidPlantResponse(f"{self._client.name}: heron can't be started ({error.strerror}).") from error
        except subprocess.TimeoutExpired as error:
            raise PlantUnavailable(f"{self._client.name}: heron update took more than {UPDATE_SECONDS:g} s.") from error
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
            raise InvalidPlantResponse(f"{self._client.name}: heron update failed: {said[-1][:MAX_MESSAGE]}")

    def close(self) -> None:
        self._client.close()

    def _ask(self, endpoint: str, **query: Any) -> Any:
        """Return the result of a successful answer."""
        place = {"cluster": self._cluster, "environ": self._environ, "topology": self._topology}
        status, document = self._client.ask("GET", f"topologies/{endpoint}", **place, **query)
        if status != 200 or not isinstance(document, dict) or document.get("status") != "success":
            message = document.get("message") if isinstance(document, dict) else None
            said = str(message or "no reason given")[:MAX_MESSAGE]
            raise InvalidPlantResponse(f"{self._client.name} rejected the request ({status}): {said}")
        return document.get("result")

    def _read_components(self) -> list[Component]:
        """Return the components from both plans, which are one answer, and so of one instant."""
        result = self._ask("info")
        try:
            return list(iterate_components(result["logical_plan"], result["physical_plan"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidPlantResponse(
                f"{self._client.name} returned an invalid Heron topology ({error!r})."
            ) from error

    def _read_timeline(self, component: Component) -> Timeline:
        end = int(self._clock()) // MINUTE_SECONDS * MINUTE_SECONDS
        query = {"starttime": end - WINDOW_SECONDS, "endtime": end, "metricname": list_metrics(component)}
        result = self._ask("metricstimeline", component=component.name, **query)
        try:
            return {
                metric: {
                    instance: {
                        minute: value for minute, text in minutes.items() if (value := _parse_metric(text)) is not None
                    }
                    for instance, minutes in instances.items()
                }
                for metric, instances in result["timeline"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidPlantResponse(f"{self._client.name} returned invalid Heron metrics ({error!r}).") from error


def update(arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run Heron's command line, without any of Weir's secrets."""
    return subprocess.run(
        [variables.HERON.get_text(), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=UPDATE_SECONDS,
        check=False,
        env=select_needed(variables.PROCESS, prefixes=ENVIRONMENT_PREFIXES),
    )


def check_options(options: Mapping[str, str]) -> None:
    """Raise `BadInput` for an option that is missing, or that the command line could misread."""
    for name in ("cluster", "role", "topology"):
        if not options.get(name):
            raise BadInput(name, "is missing; Heron needs it to identify the topology.")
    for name, value in options.items():
        if not all(part.isalnum() for part in value.replace("-", "_").split("_") if part) or value[:1] == "-":
            raise BadInput(name, f"must have only letters, digits, hyphens, and underscores, not {value[:40]!r}.")


def iterate_components(logical: Mapping[str, Any], physical: Mapping[str, Any]) -> Iterator[Component]:
    """Read the components from the tracker's two plans. Raise `KeyError` or `TypeError` if invalid."""
    for kind in ("spouts", "bolts"):
        for name, row in logical[kind].items():
            inputs = tuple((stream["component_name"], stream["stream_name"]) for stream in row.get("inputs", ()))
            outputs = tuple(stream["stream_name"] for stream in row.get("outputs", ()))
            yield Component(name, outputs, inputs, tuple(physical[kind][name]))


def list_metrics(component: Component) -> list[str]:
    """Return the metrics to request from the instances of a component."""
    emitted = [f"__emit-count/{stream}" for stream in component.outputs]
    if component.is_spout:
        ended = ("__ack-count", "__fail-count", "__complete-latency")
        return [*emitted, *(f"{name}/{stream}" for name in ended for stream in component.outputs)]
    streams = dict.fromkeys(stream for _, stream in component.inputs)
    worked = ("__execute-count", "__execute-latency")
    return [*emitted, *(f"{name}/{stream}" for name in worked for stream in streams)]


def _parse_metric(text: Any) -> float | None:
    """Return a metric of a minute, or None if it is invalid, so that the other minutes represent it."""
    try:
        value = parse_measured_number(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _build_operator(component: Component, timeline: Timeline, emitted: Mapping[str, float | None]) -> MeasuredOperator:
    count = len(component.instances)
    tasks = tuple(_compute_task_measures(component, instance, timeline, emitted) for instance in component.instances)
    if component.is_spout:
        failed = _sum_metric(timeline, "__fail-count", component)
        acked = _sum_metric(timeline, "__ack-count", component)
        return MeasuredOperator(component.name, "source", count, count, count, NOT_SET, failed, acked, tasks)
    # While one instance reports nothing, the sums of the others would be too small.
    is_whole = all(task["executions"] is not None for task in tasks)
    return MeasuredOperator(component.name, "operator", count, 1, MAX_TASKS, tasks=tasks if is_whole else ())


def _compute_task_measures(
    component: Component, instance: str, timeline: Timeline, emitted: Mapping[str, float | None]
) -> dict[str, float | None]:
    outputs = _sum_by_minute(timeline, "__emit-count", instance)
    measures: dict[str, float | None] = {
        "outputs": _scale_to_window(outputs),
        "outputs_variance": _compute_variance(outputs),
    }
    if component.is_spout:
        return measures
    executed = _sum_by_minute(timeline, "__execute-count", instance)
    latencies = [minute * NANOSECOND for minute in _sum_by_minute(timeline, "__execute-latency", instance)]
    latency = fmean(latencies) if latencies else None
    worked = _scale_to_window(executed)
    inputs = _compute_input_share(component, emitted)
    return measures | {
        "latency_seconds": latency,
        "latency_variance": _compute_variance(latencies),
        "service_seconds": latency,
        "service_variance": _compute_variance(latencies),
        "utilisation": None if latency is None or worked is None else min(1.0, latency * worked / WINDOW_SECONDS),
        "inputs": inputs,
        "arrival_interval_seconds": WINDOW_SECONDS / inputs if inputs else None,
        "executions": worked,
        "executions_variance": _compute_variance(executed),
    }


def _compute_input_share(component: Component, emitted: Mapping[str, float | None]) -> float | None:
    """Return a task's equal share of the output of the components before it."""
    before = [emitted.get(name) for name in dict.fromkeys(name for name, _ in component.inputs)]
    known = [stream for stream in before if stream is not None]
    if not known or len(known) < len(before) or not component.instances:
        return None
    return sum(known) / len(component.instances)


def _sum_metric(timeline: Timeline, metric: str, component: Component) -> float | None:
    """Return the sums over all instances, streams, and minutes; None while an instance reports nothing."""
    counts = [_scale_to_window(_sum_by_minute(timeline, metric, instance)) for instance in component.instances]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _scale_to_window(minutes: Sequence[float]) -> float | None:
    """Scale a count to all minutes of the window if a new instance reports only some of them."""
    return fmean(minutes) * WINDOW_MINUTES if minutes else None


def _sum_by_minute(timeline: Timeline, metric: str, instance: str) -> list[float]:
    """Return the metric's value of each minute, summed over streams."""
    together: dict[str, float] = {}
    for name, instances in timeline.items():
        if name.partition("/")[0] == metric:
            for minute, value in instances.get(instance, {}).items():
                together[minute] = together.get(minute, 0.0) + value
    return list(together.values())


def _compute_variance(values: Sequence[float]) -> float | None:
    return variance(values) if len(values) > 1 else None


ADAPTER = AdapterKind(
    name="heron",
    title="Heron tracker (not tested with a live cluster)",
    options={
        "cluster": PlantOption("name of the cluster", "Cluster", required=True),
        "role": PlantOption("role that the topology was submitted with", "Role", required=True),
        "environ": PlantOption("environment of the topology; empty for default", "Environment"),
        "topology": PlantOption("name of the topology", "Topology", required=True),
    },
    example="http://tracker.example:8888",
    check=lambda address: check_options(address.options),
    make=lambda address: HeronPlant(address.create_client(), address.options),
)
