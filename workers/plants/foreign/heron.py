"""A topology on Heron, by its tracker (REST) and its command line. **Not run against a live cluster.**

It is tested against the replies that Heron's documentation describes, and nothing else.

The tracker gives plans and, minute by minute, the metrics of every instance (Stutz, 6.2): `__execute-count`,
`__emit-count`, `__ack-count`, `__fail-count` are counted a stream, `__execute-latency` and
`__complete-latency` are nanoseconds. What Heron doesn't measure is approximated as there: what comes to a
bolt is what the components before it emit to its streams, a bolt's service time is its execute latency,
variances are those of the minutes. Of an instance that was just started some minutes are not said: what it
did in the others stands for all of them.

`heron update CLUSTER/ROLE/ENVIRON TOPOLOGY --component-parallelism=NAME:TASKS …` sets tasks; Heron restarts
what has to. The program is `heron` on the PATH, or what WEIR_HERON says: never a value from the console's
database.
"""

import math
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any

from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from queues import environment as variables
from queues.errors import BadInput
from queues.text.numbers import measured_number
from workers.host.environment import needed
from workers.plants.foreign.client import PlantClient
from workers.plants.foreign.kind import Adapter, AdapterKind, PlantOption
from workers.plants.plant import PlantConfused, PlantSilent

WINDOW_SECONDS, MINUTE_SECONDS = 180, 60
WINDOW_MINUTES = WINDOW_SECONDS // MINUTE_SECONDS
UPDATE_SECONDS = 120.0
MOST_TASKS = 256
LONGEST_MESSAGE = 300
NANOSECOND = 1e-9
# What its command line, and the schedulers behind it, read of the environment.
ENVIRONMENT_PREFIXES = ("HADOOP_", "HERON_", "KUBECONFIG", "YARN_")
NOT_SET = "it is a spout, which brings events in"
Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]
Timeline = Mapping[str, Mapping[str, Mapping[str, float]]]  # metric → instance → minute → value


@dataclass(frozen=True)
class Component:
    """A spout or bolt: what it emits to, who it hears on which stream, its instances in order."""

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

    def topology(self) -> MeasuredTopology:
        """Of the last WINDOW_SECONDS. Raises PlantSilent and PlantConfused."""
        components = self._components()
        found = {each.name: self._timeline(each) for each in components}
        emitted = {each.name: _sums(found[each.name], "__emit-count", each) for each in components}
        operators = {each.name: _operator(each, found[each.name], emitted) for each in components}
        links = tuple(
            Link(before, each.name)
            for each in components
            for before in dict.fromkeys(name for name, _ in each.inputs)
        )
        return MeasuredTopology(self._client.name, self._clock(), float(WINDOW_SECONDS), operators, links)

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """By `heron update`, and only when they are others. Raises as `Elastic` says."""
        components = {each.name: each for each in self._components()}
        operators = {name: _operator(each, {}, {}) for name, each in components.items()}
        checked = MeasuredTopology(self._client.name, 0.0, 1.0, operators).check_tasks(tasks)
        wanted = {name: n for name, n in checked.items() if n != len(components[name].instances)}
        if not wanted:
            return
        place = f"{self._cluster}/{self._role}/{self._environ}"
        counts = [f"--component-parallelism={name}:{count}" for name, count in wanted.items()]
        try:
            done = self._run(["update", place, self._topology, *counts])
        except FileNotFoundError as error:
            raise PlantConfused(f"{self._client.name}: there is no program heron ({error}).") from error
        except OSError as error:
            raise PlantConfused(f"{self._client.name}: heron can't be started ({error.strerror}).") from error
        except subprocess.TimeoutExpired as error:
            raise PlantSilent(f"{self._client.name}: heron update took over {UPDATE_SECONDS:g} s.") from error
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines() or ["it doesn't say why"]
            raise PlantConfused(f"{self._client.name}: heron update refuses: {said[-1][:LONGEST_MESSAGE]}")

    def close(self) -> None:
        self._client.close()

    def _ask(self, endpoint: str, **query: Any) -> Any:
        """The result of an answer that says success."""
        place = {"cluster": self._cluster, "environ": self._environ, "topology": self._topology}
        status, document = self._client.ask("GET", f"topologies/{endpoint}", **place, **query)
        if status != 200 or not isinstance(document, dict) or document.get("status") != "success":
            message = document.get("message") if isinstance(document, dict) else None
            said = str(message or "it gives no reason")[:LONGEST_MESSAGE]
            raise PlantConfused(f"{self._client.name} refuses us ({status}): {said}")
        return document.get("result")

    def _components(self) -> list[Component]:
        """Both plans in one answer, so that they are of one instant."""
        result = self._ask("info")
        try:
            return list(components_of(result["logical_plan"], result["physical_plan"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise PlantConfused(
                f"{self._client.name} answers what is no topology of Heron ({error!r})."
            ) from error

    def _timeline(self, component: Component) -> Timeline:
        end = int(self._clock()) // MINUTE_SECONDS * MINUTE_SECONDS
        query = {"starttime": end - WINDOW_SECONDS, "endtime": end, "metricname": metrics_of(component)}
        result = self._ask("metricstimeline", component=component.name, **query)
        try:
            return {
                metric: {
                    instance: {
                        minute: value
                        for minute, text in minutes.items()
                        if (value := _number(text)) is not None
                    }
                    for instance, minutes in instances.items()
                }
                for metric, instances in result["timeline"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PlantConfused(f"{self._client.name} answers no metrics of Heron ({error!r}).") from error


def update(arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Runs Heron's command line. It gets none of our secrets."""
    return subprocess.run(
        [variables.HERON.text(), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=UPDATE_SECONDS,
        check=False,
        env=needed(variables.PROCESS, prefixes=ENVIRONMENT_PREFIXES),
    )


def check_options(options: Mapping[str, str]) -> None:
    """Raise BadInput for one that is missing, or could be taken for something else by the command line."""
    for name in ("cluster", "role", "topology"):
        if not options.get(name):
            raise BadInput(name, "is missing; Heron names a topology by it.")
    for name, value in options.items():
        if not all(part.isalnum() for part in value.replace("-", "_").split("_") if part) or value[:1] == "-":
            raise BadInput(name, f"takes letters, digits, - and _, not {value[:40]!r}.")


def components_of(logical: Mapping[str, Any], physical: Mapping[str, Any]) -> Iterator[Component]:
    """Of the tracker's two plans. Raises KeyError and TypeError where they are something else."""
    for kind in ("spouts", "bolts"):
        for name, row in logical[kind].items():
            inputs = tuple((each["component_name"], each["stream_name"]) for each in row.get("inputs", ()))
            outputs = tuple(each["stream_name"] for each in row.get("outputs", ()))
            yield Component(name, outputs, inputs, tuple(physical[kind][name]))


def metrics_of(component: Component) -> list[str]:
    """What is asked of its instances."""
    emitted = [f"__emit-count/{stream}" for stream in component.outputs]
    if component.is_spout:
        ended = ("__ack-count", "__fail-count", "__complete-latency")
        return [*emitted, *(f"{name}/{stream}" for name in ended for stream in component.outputs)]
    streams = dict.fromkeys(stream for _, stream in component.inputs)
    worked = ("__execute-count", "__execute-latency")
    return [*emitted, *(f"{name}/{stream}" for name in worked for stream in streams)]


def _number(text: Any) -> float | None:
    """Return a metric of a minute; None for what can't be one, so that the other minutes stand for it."""
    try:
        value = measured_number(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _operator(
    component: Component, timeline: Timeline, emitted: Mapping[str, float | None]
) -> MeasuredOperator:
    count = len(component.instances)
    tasks = tuple(_task(component, instance, timeline, emitted) for instance in component.instances)
    if component.is_spout:
        failed = _sums(timeline, "__fail-count", component)
        acked = _sums(timeline, "__ack-count", component)
        return MeasuredOperator(component.name, "source", count, count, count, NOT_SET, failed, acked, tasks)
    # While one says nothing the sums of the others would be too small.
    is_whole = all(each["executions"] is not None for each in tasks)
    return MeasuredOperator(component.name, "operator", count, 1, MOST_TASKS, tasks=tasks if is_whole else ())


def _task(
    component: Component, instance: str, timeline: Timeline, emitted: Mapping[str, float | None]
) -> dict[str, float | None]:
    outputs = _minutes(timeline, "__emit-count", instance)
    found: dict[str, float | None] = {
        "outputs": _of_window(outputs),
        "outputs_variance": _variance(outputs),
    }
    if component.is_spout:
        return found
    executed = _minutes(timeline, "__execute-count", instance)
    latencies = [each * NANOSECOND for each in _minutes(timeline, "__execute-latency", instance)]
    latency = fmean(latencies) if latencies else None
    worked = _of_window(executed)
    inputs = _inputs(component, emitted)
    return found | {
        "latency_seconds": latency,
        "latency_variance": _variance(latencies),
        "service_seconds": latency,
        "service_variance": _variance(latencies),
        "utilisation": None
        if latency is None or worked is None
        else min(1.0, latency * worked / WINDOW_SECONDS),
        "inputs": inputs,
        "arrival_interval_seconds": WINDOW_SECONDS / inputs if inputs else None,
        "executions": worked,
        "executions_variance": _variance(executed),
    }


def _inputs(component: Component, emitted: Mapping[str, float | None]) -> float | None:
    """Its part of what the components before it emit: all of an operator's tasks are offered alike."""
    before = [emitted.get(name) for name in dict.fromkeys(name for name, _ in component.inputs)]
    known = [each for each in before if each is not None]
    if not known or len(known) < len(before) or not component.instances:
        return None
    return sum(known) / len(component.instances)


def _sums(timeline: Timeline, metric: str, component: Component) -> float | None:
    """Of all instances, streams and minutes; None while one of them says nothing."""
    counts = [_of_window(_minutes(timeline, metric, each)) for each in component.instances]
    known = [each for each in counts if each is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _of_window(minutes: Sequence[float]) -> float | None:
    """A count of all its minutes, where one that was just started says some of them: as if it had always
    gone on like that.
    """
    return fmean(minutes) * WINDOW_MINUTES if minutes else None


def _minutes(timeline: Timeline, metric: str, instance: str) -> list[float]:
    """The metric's value of each minute, streams together."""
    together: dict[str, float] = {}
    for name, instances in timeline.items():
        if name.partition("/")[0] == metric:
            for minute, value in instances.get(instance, {}).items():
                together[minute] = together.get(minute, 0.0) + value
    return list(together.values())


def _variance(values: Sequence[float]) -> float | None:
    return variance(values) if len(values) > 1 else None


ADAPTER = AdapterKind(
    name="heron",
    title="Heron, by its tracker (not run against a live cluster)",
    options={
        "cluster": PlantOption("the cluster's name", "Cluster", required=True),
        "role": PlantOption("the role it was submitted with", "Role", required=True),
        "environ": PlantOption("its environment; empty for default", "Environment"),
        "topology": PlantOption("the topology's name", "Topology", required=True),
    },
    example="http://tracker.example:8888",
    check=lambda address: check_options(address.options),
    make=lambda address: HeronPlant(address.client(), address.options),
)
