"""A job on a Flink session cluster, through its REST API.

Vertices are operators, subtasks tasks. Rescaling needs the adaptive scheduler (`jobmanager.scheduler: adaptive`). The
number that is set becomes the upper bound in the resource requirements of the vertex, and the cluster restarts the job
with it from its last checkpoint. A lower bound that somebody configured stays, and is the minimum; the maximum is what
free slots allow. Vertices without inputs are sources, and can't be set. With operator chaining, a chain is one vertex.

One check takes several requests, so the job is read before and after: if it was rescaled or restarted meanwhile, the
check is discarded. Counts are from the checks of the last WINDOW_SECONDS; the work of a task is its
`busyTimeMsPerSecond`.

A cluster fetches metrics from its tasks every 10 s unless `metrics.fetcher.update-interval` is set, and repeats its
former answer until then. So a check without new values is discarded, too, for UNCHANGED_SECONDS: after that the job is
considered idle. Metrics of a new task arrive later than those of others: a measure that is unknown for one task is
unknown for its operator. Counts of a part of the window are extrapolated to the whole window.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from common.checks import is_number
from common.parsing import parse_measured_number
from controllers.parallelism.measured_topology import COUNTS, MAX_TASKS, Link, MeasuredOperator, MeasuredTopology
from workers.documents.plants import PlantSection, PlantStatus
from workers.pipeline.status.measures import WorkSample, compute_measures
from workers.plants.foreign.client import PlantClient, find_first_error
from workers.plants.foreign.flink import sections
from workers.plants.foreign.kind import Adapter, RestoredValue
from workers.plants.foreign.leases import TasksBefore
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

WINDOW_SECONDS = 15.0
UNCHANGED_SECONDS = 12.0
RECORDS, BUSY = ("numRecordsIn", "numRecordsOut"), "busyTimeMsPerSecond"
NOT_SET = "a source of the job, which only supplies events"
AUTOSCALED = (
    "the autoscaler of the Kubernetes operator controls the job (job.autoscaler.enabled); a job must have"
    " only one controller"
)
AUTOSCALER = ("job.autoscaler.enabled", "kubernetes.operator.job.autoscaler.enabled")
MAX_NAME = 100
# tasks per metrics request: Flink's server refuses a line of more than 4096 characters
SUBTASKS_AT_ONCE = 40


@dataclass(frozen=True)
class Vertex:
    """A vertex of the job. `inputs` are the ids of the vertices before it. slots: its slot sharing group."""

    id: str
    name: str
    parallelism: int
    most: int
    inputs: tuple[str, ...]
    slots: str = ""


@dataclass(frozen=True)
class FlinkJob:
    """A running job; `shape` changes with every rescale and restart.

    seconds: time since it was submitted, which its own restarts don't change; None: unknown.
    """

    id: str
    vertices: tuple[Vertex, ...]
    shape: tuple[object, ...]
    seconds: float | None = None


@dataclass(frozen=True)
class FlinkSample:
    """The values at one instant: vertex id → per subtask (records in, records out, busy ms per second)."""

    at: float
    values: Mapping[str, tuple[tuple[float | None, ...], ...]]


class FlinkPlant(Adapter):
    """One job: by name or id, or the only one that runs."""

    tasks_before: TasksBefore

    def __init__(
        self,
        client: PlantClient,
        job: str = "",
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        before: TasksBefore | None = None,
    ) -> None:
        """Set up the plant. before: the tasks of operators before Weir."""
        self.tasks_before = before or TasksBefore(clock)
        self._client, self._wanted, self._clock, self._monotonic = client, job, clock, monotonic
        self._recent: deque[FlinkSample] = deque()
        self._shape: tuple[object, ...] = ()
        self._autoscaled: str | None = None
        self._seen: FlinkJob | None = None
        self._submitted: tuple[str, float | None] = ("", None)  # (job, start time in seconds since 1970)

    def get_topology(self) -> MeasuredTopology:
        """Return the topology. Measures are unknown before the second check.

        Raise `PlantUnavailable` and `InvalidPlantResponse`.
        """
        job = self._read_job()
        if job.shape != self._shape:
            self._recent.clear()
            self._shape = job.shape
        sample = FlinkSample(self._monotonic(), {vertex.id: self._read_values(job, vertex) for vertex in job.vertices})
        if self._read_job().shape != job.shape:
            raise PlantUnavailable(f"{self._client.name}: the job was rescaled during the observation.")
        last = self._recent[-1] if self._recent else None
        if last is None or last.values != sample.values or sample.at - last.at >= UNCHANGED_SECONDS:
            self._recent.append(sample)
        self._seen = job
        if self._submitted[0] != job.id:
            self._submitted = job.id, None if job.seconds is None else self._clock() - job.seconds
        while len(self._recent) > 2 and self._recent[1].at <= sample.at - WINDOW_SECONDS:
            self._recent.popleft()
        status, requirements = self._client.ask("GET", f"jobs/{job.id}/resource-requirements")
        is_known = status == 200 and isinstance(requirements, dict)  # otherwise the scheduler has none
        return self._build_topology(job, self._free_slots(), requirements if is_known else {})

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """Set tasks; the cluster rescales the job within seconds. Raise as `ElasticPlant` says."""
        job = self._read_job()
        path = f"jobs/{job.id}/resource-requirements"
        now = self._get_mapping(path)
        topology = self._build_topology(job, self._free_slots(), now)
        topology.check_tasks(tasks)
        ids = {name: vertex.id for name, vertex in name_vertices(job.vertices).items()}
        wanted = {
            **now,
            **{
                ids[name]: {"parallelism": {"lowerBound": _get_lower_bound(now, ids[name]), "upperBound": count}}
                for name, count in tasks.items()
            },
        }
        if wanted != now:
            self.tasks_before.remember({name: topology.operators[name].parallelism for name in tasks}, tasks)
            status, answer = self._client.ask("PUT", path, wanted)
            if status != 200:
                message = find_first_error(answer)[1]
                raise InvalidPlantResponse(f"{self._client.name} rejected the rescale ({status}): {message}")

    def renew_leases(self) -> Sequence[RestoredValue]:
        """Forget the tasks of an earlier job; nothing here has a lease."""
        self.tasks_before.forget_restarted(self.get_details().lives)
        return ()

    def list_sections(self) -> Sequence[PlantSection]:
        """Return the back-pressure, rescales, checkpoints, and exceptions of the job that `topology` saw."""
        if self._seen is None:
            return ()
        names = {vertex.id: name for name, vertex in name_vertices(self._seen.vertices).items()}
        return sections.build_sections(self._client, self._seen.id, names)

    def get_details(self) -> PlantStatus:
        """Return the start time of the job for each vertex: a job that is submitted again under its name is another."""
        at = self._submitted[1]
        return PlantStatus(
            lives={} if self._seen is None or at is None else dict.fromkeys(name_vertices(self._seen.vertices), at)
        )

    def close(self) -> None:
        self._client.close()

    def _get(self, path: str, **query: str) -> Any:
        status, document = self._client.ask("GET", path, **query)
        if status != 200:
            raise InvalidPlantResponse(
                f"{self._client.name} rejected the request ({status}): {find_first_error(document)[1]}"
            )
        return document

    def _get_mapping(self, path: str) -> dict[str, object]:
        document = self._get(path)
        if not isinstance(document, dict):
            raise InvalidPlantResponse(f"{self._client.name} returned a response at {path} that is not from Flink.")
        return document

    def _read_job(self) -> FlinkJob:
        try:
            document = self._get(f"jobs/{self._find_job_id()}")
            if document["state"] != "RUNNING":
                raise PlantUnavailable(f"{self._client.name}: the job is {document['state']}.")
            return parse_job(document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidPlantResponse(f"{self._client.name} returned an invalid Flink job ({error!r}).") from error

    def _find_job_id(self) -> str:
        jobs = self._get("jobs/overview")["jobs"]
        running = [job for job in jobs if job["state"] not in ("FINISHED", "CANCELED", "FAILED")]
        fitting = [job for job in running if self._wanted in ("", job["jid"], job["name"])]
        if len(fitting) == 1:
            return str(fitting[0]["jid"])
        wanted = f" named {self._wanted}" if self._wanted else ""
        names = ", ".join(str(job["name"]) for job in running) or "none"
        raise PlantUnavailable(
            f"{self._client.name} has {len(fitting)} running jobs{wanted} instead of 1. Choose a running job"
            f" with the option job: {names}."
        )

    def _free_slots(self) -> int:
        """Return the number of slots that no job has.

        Also note whether the cluster's configuration says that another controller sets tasks.
        """
        status, rows = self._client.ask("GET", "jobmanager/config")
        free_rows = rows if status == 200 and isinstance(rows, list) else []
        said = {str(row.get("key")): str(row.get("value")) for row in free_rows if isinstance(row, dict)}
        is_on = any(said.get(key, "").lower() == "true" for key in AUTOSCALER)
        self._autoscaled = AUTOSCALED if is_on else None
        free = self._get_mapping("overview").get("slots-available")
        return min(MAX_TASKS, max(0, int(free))) if is_number(free) else 0

    def _read_values(self, job: FlinkJob, vertex: Vertex) -> tuple[tuple[float | None, ...], ...]:
        wanted = (*RECORDS, BUSY)
        values: dict[str, float | None] = {}
        try:
            for first in range(0, vertex.parallelism, SUBTASKS_AT_ONCE):
                subtasks = range(first, min(first + SUBTASKS_AT_ONCE, vertex.parallelism))
                names = [f"{subtask}.{name}" for subtask in subtasks for name in wanted]
                rows = self._get(f"jobs/{job.id}/vertices/{vertex.id}/metrics", get=",".join(names))
                values |= {row["id"]: _parse_number(row["value"]) for row in rows}
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidPlantResponse(f"{self._client.name} returned invalid Flink metrics ({error!r}).") from error
        return tuple(tuple(values.get(f"{subtask}.{name}") for name in wanted) for subtask in range(vertex.parallelism))

    def _build_topology(self, job: FlinkJob, free_slots: int, requirements: Mapping[str, Any]) -> MeasuredTopology:
        """Return the topology.

        Vertices share slots, with a subtask of each in one slot: a job takes as many slots as its widest vertex has
        tasks.
        """
        window = self._recent[-1].at - self._recent[0].at if self._recent else 0.0
        vertices = name_vertices(job.vertices)
        names = {vertex.id: name for name, vertex in vertices.items()}
        own: dict[str, int] = {}
        for vertex in job.vertices:
            own[vertex.slots] = max(own.get(vertex.slots, 1), vertex.parallelism)
        operators = {
            name: self._build_operator(
                name, vertex, _get_lower_bound(requirements, vertex.id), free_slots + own[vertex.slots], window
            )
            for name, vertex in vertices.items()
        }
        links = tuple(Link(names[before], name) for name, vertex in vertices.items() for before in vertex.inputs)
        return MeasuredTopology(self._client.name, self._clock(), window or WINDOW_SECONDS, operators, links)

    def _build_operator(self, name: str, vertex: Vertex, least: int, slots: int, window: float) -> MeasuredOperator:
        tasks = tuple(self._compute_task_measures(vertex, subtask, window) for subtask in range(vertex.parallelism))
        kind, fixed = ("operator", self._autoscaled) if vertex.inputs else ("source", NOT_SET)
        most = max(least, min(vertex.most, slots))
        known = tasks if all(tasks) else ()  # sums over a part of the tasks would be too small
        return MeasuredOperator(name, kind, vertex.parallelism, least, most, fixed, tasks=known)

    def _compute_task_measures(self, vertex: Vertex, subtask: int, window: float) -> Mapping[str, float | None]:
        samples = list(_iterate_samples(self._recent, vertex.id, subtask))
        if not samples or not window:
            return {}
        known_seconds = sum(sample.elapsed_seconds or 0.0 for sample in samples)
        task_measures = compute_measures(samples, known_seconds)
        for name in COUNTS:
            task_measures[name] = (task_measures[name] or 0.0) * window / known_seconds
        if not vertex.inputs:  # the input of a source is not counted
            return {name: task_measures[name] for name in ("outputs", "outputs_variance", "utilisation")}
        # Events wait in front of a task and are counted when it takes them: the load offered to a busy task is higher.
        return task_measures | {"latency_seconds": task_measures["service_seconds"], "latency_variance": None}


def _iterate_samples(samples: deque[FlinkSample], vertex: str, subtask: int) -> Iterator[WorkSample]:
    """Yield the samples between checks in which all values are known and no counter fell."""
    for before, after in pairwise(samples):
        elapsed = after.at - before.at
        was, now = before.values[vertex][subtask], after.values[vertex][subtask]
        if None in was or None in now or elapsed <= 0:
            continue
        came, gave = now[0] - was[0], now[1] - was[1]  # type: ignore[operator]
        if min(came, gave) >= 0:
            busy_seconds = min(1.0, max(0.0, now[2] / 1_000)) * elapsed  # type: ignore[operator]
            yield WorkSample(elapsed, came, round(came), round(gave), busy_seconds)


def parse_job(document: Mapping[str, Any]) -> FlinkJob:
    """Read a job from `/jobs/{id}`. Raise `KeyError`, `TypeError` or `ValueError` for another document."""
    inputs = {node["id"]: tuple(edge["id"] for edge in node.get("inputs", ())) for node in document["plan"]["nodes"]}
    vertices = tuple(
        Vertex(
            str(row["id"]),
            str(row["name"]),
            int(row["parallelism"]),
            int(row["maxParallelism"]) if int(row["maxParallelism"]) > 0 else MAX_TASKS,
            inputs.get(row["id"], ()),
            str(row.get("slotSharingGroupId") or ""),
        )
        for row in document["vertices"]
    )
    for vertex in vertices:
        if not 0 <= vertex.parallelism <= MAX_TASKS:  # it would exhaust the memory
            raise ValueError(f"{vertex.parallelism:.6g} tasks")
    if missing := {entry_id for ids in inputs.values() for entry_id in ids} - {vertex.id for vertex in vertices}:
        raise ValueError(f"no vertex has the ID {min(map(str, missing))[:MAX_NAME]}")
    started = tuple((row["id"], row["parallelism"], row.get("start-time")) for row in document["vertices"])
    milliseconds = document.get("duration")
    seconds = milliseconds / 1_000 if is_number(milliseconds, 0) else None
    return FlinkJob(str(document["jid"]), vertices, (document["jid"], *started), seconds)


def name_vertices(vertices: tuple[Vertex, ...]) -> dict[str, Vertex]:
    """Return the vertices by distinct names that fit into a map of operators."""
    vertices_by_name: dict[str, Vertex] = {}
    for vertex in vertices:
        plain = " ".join(vertex.name.replace(";", ",").split())[:MAX_NAME] or vertex.id
        name, number = plain, 2
        while name in vertices_by_name:
            name, number = f"{plain} {number}", number + 1
        vertices_by_name[name] = vertex
    return vertices_by_name


def _get_lower_bound(requirements: Mapping[str, Any], vertex: str) -> int:
    try:
        return max(1, int(requirements[vertex]["parallelism"]["lowerBound"]))
    except (KeyError, TypeError, ValueError):
        return 1


def _parse_number(text: object) -> float | None:
    """Return a number. Flink writes numbers as text, and NaN for unknown; any other text is unknown, too."""
    try:
        value = parse_measured_number(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
