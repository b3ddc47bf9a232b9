"""A job on a Flink session cluster, through the cluster's REST API; vertices are operators, subtasks tasks.

Rescaling needs the adaptive scheduler (`jobmanager.scheduler: adaptive`): what is set becomes the upper bound
of the vertex's resource requirements, and the cluster restarts the job with it from its last checkpoint. The
lower bound that somebody gave it stays, and is the least that is set; the most is what free slots allow.
Vertices without inputs are sources, and as such left alone. With operator chaining, what is chained is one
vertex.

One check takes several requests, so the job is asked before and after: was it rescaled or restarted
meanwhile, the check counts for nothing. Counts are of the checks of the last WINDOW_SECONDS; a task's work is
its `busyTimeMsPerSecond`.

A cluster fetches metrics from its tasks each 10 s unless `metrics.fetcher.update-interval` says otherwise,
and until then answers what it answered before. So a check that brings nothing new counts for nothing either,
for UNCHANGED_SECONDS: after that the job stands still. Metrics of a new task come later than those of
others: what is not known of each task is not known of an operator, and what was counted for a part of the
window is taken to have gone on like that.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from controllers.parallelism.measured_topology import (
    COUNTS,
    MOST_TASKS,
    Link,
    MeasuredOperator,
    MeasuredTopology,
)
from queues.checks import is_number
from queues.text.numbers import measured_number
from workers.documents.plants import PlantSection
from workers.pipeline.status.task_measures import WorkSample, measures
from workers.plants.foreign.client import PlantClient, first_error
from workers.plants.foreign.flink import sections
from workers.plants.foreign.kind import Adapter
from workers.plants.plant import PlantConfused, PlantSilent

WINDOW_SECONDS = 15.0
UNCHANGED_SECONDS = 12.0
RECORDS, BUSY = ("numRecordsIn", "numRecordsOut"), "busyTimeMsPerSecond"
NOT_SET = "it is a source of the job, which brings events in"
AUTOSCALED = "the Kubernetes operator's autoscaler steers the job (job.autoscaler.enabled): one of both may"
AUTOSCALER = ("job.autoscaler.enabled", "kubernetes.operator.job.autoscaler.enabled")
LONGEST_NAME = 100
# Of a request for metrics: Flink's server refuses a line of more than 4096 characters.
SUBTASKS_AT_ONCE = 40


@dataclass(frozen=True)
class Vertex:
    """As the job has it: `inputs` are ids of the vertices before. slots: whose slots it shares."""

    id: str
    name: str
    parallelism: int
    most: int
    inputs: tuple[str, ...]
    slots: str = ""


@dataclass(frozen=True)
class FlinkJob:
    """A running job; `shape` changes with every rescale and restart. seconds: since it was submitted, which
    no restart of its own changes; None: the cluster does not say.
    """

    id: str
    vertices: tuple[Vertex, ...]
    shape: tuple[Any, ...]
    seconds: float | None = None


@dataclass(frozen=True)
class FlinkSample:
    """Of one instant: vertex id → per subtask (records in, records out, busy ms per second)."""

    at: float
    values: Mapping[str, tuple[tuple[float | None, ...], ...]]


class FlinkPlant(Adapter):
    """One job; by name or id, or the only one that runs."""

    def __init__(
        self,
        client: PlantClient,
        job: str = "",
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._wanted, self._clock, self._monotonic = client, job, clock, monotonic
        self._recent: deque[FlinkSample] = deque()
        self._shape: tuple[Any, ...] = ()
        self._autoscaled: str | None = None
        self._seen: FlinkJob | None = None
        self._submitted: tuple[str, float | None] = ("", None)  # which job, and when, s since 1970
        self._rescaled: dict[str, str] = {}  # what rescales changed, by their id

    def topology(self) -> MeasuredTopology:
        """Measures need two checks; before, they are unknown. Raises PlantSilent and PlantConfused."""
        job = self._job()
        if job.shape != self._shape:
            self._recent.clear()
            self._shape = job.shape
        sample = FlinkSample(self._monotonic(), {each.id: self._values(job, each) for each in job.vertices})
        if self._job().shape != job.shape:
            raise PlantSilent(f"{self._client.name}: the job was rescaled during the observation.")
        if self._is_news(sample):
            self._recent.append(sample)
        self._seen = job
        if self._submitted[0] != job.id:
            self._submitted = job.id, None if job.seconds is None else self._clock() - job.seconds
        while len(self._recent) > 2 and self._recent[1].at <= sample.at - WINDOW_SECONDS:
            self._recent.popleft()
        return self._topology(job, self._free_slots(), self._requirements(job))

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """The cluster rescales the job within seconds. Raises as `Elastic` says."""
        job = self._job()
        path = f"jobs/{job.id}/resource-requirements"
        now = self._mapping(path)
        self._topology(job, self._free_slots(), now).check_tasks(tasks)
        ids = {name: vertex.id for name, vertex in named(job.vertices).items()}
        wanted = {
            **now,
            **{
                ids[name]: {"parallelism": {"lowerBound": _least(now, ids[name]), "upperBound": count}}
                for name, count in tasks.items()
            },
        }
        if wanted != now:
            status, answer = self._client.ask("PUT", path, wanted)
            if status != 200:
                message = first_error(answer)[1]
                raise PlantConfused(f"{self._client.name} refuses to rescale ({status}): {message}")

    def sections(self) -> Sequence[PlantSection]:
        """Back-pressure, rescales, checkpoints and exceptions of the job that `topology` saw."""
        if self._seen is None:
            return ()
        names = {vertex.id: name for name, vertex in named(self._seen.vertices).items()}
        return sections.of(self._client, self._seen.id, names, self._rescaled)

    def lives(self) -> Mapping[str, float]:
        """As long as the job: one that is submitted anew under its name is another one."""
        at = self._submitted[1]
        return {} if self._seen is None or at is None else dict.fromkeys(named(self._seen.vertices), at)

    def close(self) -> None:
        self._client.close()

    def _is_news(self, sample: FlinkSample) -> bool:
        last = self._recent[-1] if self._recent else None
        if last is None or last.values != sample.values:
            return True
        return sample.at - last.at >= UNCHANGED_SECONDS

    def _get(self, path: str, **query: Any) -> Any:
        status, document = self._client.ask("GET", path, **query)
        if status != 200:
            raise PlantConfused(f"{self._client.name} refuses us ({status}): {first_error(document)[1]}")
        return document

    def _mapping(self, path: str) -> dict[str, Any]:
        found = self._get(path)
        if not isinstance(found, dict):
            raise PlantConfused(f"{self._client.name} answers at {path} what Flink does not.")
        return found

    def _job(self) -> FlinkJob:
        try:
            found = self._get(f"jobs/{self._id()}")
            if found["state"] != "RUNNING":
                raise PlantSilent(f"{self._client.name}: the job is {found['state']}.")
            return job_of(found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PlantConfused(
                f"{self._client.name} answers what is no job of Flink ({error!r})."
            ) from error

    def _id(self) -> str:
        jobs = self._get("jobs/overview")["jobs"]
        running = [each for each in jobs if each["state"] not in ("FINISHED", "CANCELED", "FAILED")]
        fitting = [each for each in running if self._wanted in ("", each["jid"], each["name"])]
        if len(fitting) == 1:
            return str(fitting[0]["jid"])
        wanted = f" named {self._wanted}" if self._wanted else ""
        names = ", ".join(str(each["name"]) for each in running) or "none"
        raise PlantSilent(f"{self._client.name} has {len(fitting)} jobs{wanted} at work; there are: {names}.")

    def _free_slots(self) -> int:
        """Those that no job has. And whether another controller sets tasks, as the cluster's configuration
        says.
        """
        status, rows = self._client.ask("GET", "jobmanager/config")
        found = rows if status == 200 and isinstance(rows, list) else []
        said = {str(row.get("key")): str(row.get("value")) for row in found if isinstance(row, dict)}
        is_on = any(said.get(key, "").lower() == "true" for key in AUTOSCALER)
        self._autoscaled = AUTOSCALED if is_on else None
        free = self._mapping("overview").get("slots-available")
        return min(MOST_TASKS, max(0, int(free))) if is_number(free) else 0

    def _requirements(self, job: FlinkJob) -> Mapping[str, Any]:
        """Of each vertex, by its id; none where the scheduler knows none."""
        status, document = self._client.ask("GET", f"jobs/{job.id}/resource-requirements")
        return document if status == 200 and isinstance(document, dict) else {}

    def _values(self, job: FlinkJob, vertex: Vertex) -> tuple[tuple[float | None, ...], ...]:
        wanted = (*RECORDS, BUSY)
        found: dict[str, float | None] = {}
        try:
            for first in range(0, vertex.parallelism, SUBTASKS_AT_ONCE):
                subtasks = range(first, min(first + SUBTASKS_AT_ONCE, vertex.parallelism))
                names = [f"{subtask}.{name}" for subtask in subtasks for name in wanted]
                rows = self._get(f"jobs/{job.id}/vertices/{vertex.id}/metrics", get=",".join(names))
                found |= {row["id"]: _number(row["value"]) for row in rows}
        except (KeyError, TypeError, ValueError) as error:
            raise PlantConfused(f"{self._client.name} answers no metrics of Flink ({error!r}).") from error
        return tuple(
            tuple(found.get(f"{subtask}.{name}") for name in wanted) for subtask in range(vertex.parallelism)
        )

    def _topology(self, job: FlinkJob, free_slots: int, requirements: Mapping[str, Any]) -> MeasuredTopology:
        """Vertices share slots, a subtask of each in one: a job has as many as its widest vertex tasks."""
        window = self._recent[-1].at - self._recent[0].at if self._recent else 0.0
        vertices = named(job.vertices)
        names = {vertex.id: name for name, vertex in vertices.items()}
        own: dict[str, int] = {}
        for vertex in job.vertices:
            own[vertex.slots] = max(own.get(vertex.slots, 1), vertex.parallelism)
        operators = {
            name: self._operator(
                name, vertex, _least(requirements, vertex.id), free_slots + own[vertex.slots], window
            )
            for name, vertex in vertices.items()
        }
        links = tuple(
            Link(names[before], name) for name, vertex in vertices.items() for before in vertex.inputs
        )
        return MeasuredTopology(self._client.name, self._clock(), window or WINDOW_SECONDS, operators, links)

    def _operator(self, name: str, vertex: Vertex, least: int, slots: int, window: float) -> MeasuredOperator:
        tasks = tuple(self._task(vertex, subtask, window) for subtask in range(vertex.parallelism))
        kind, fixed = ("operator", self._autoscaled) if vertex.inputs else ("source", NOT_SET)
        most = max(least, min(vertex.most, slots))
        known = tasks if all(tasks) else ()  # of a part of them sums would be too small
        return MeasuredOperator(name, kind, vertex.parallelism, least, most, fixed, tasks=known)

    def _task(self, vertex: Vertex, subtask: int, window: float) -> Mapping[str, float | None]:
        samples = list(_samples(self._recent, vertex.id, subtask))
        if not samples or not window:
            return {}
        known_seconds = sum(each.elapsed_seconds for each in samples)
        found = measures(samples, known_seconds)
        for name in COUNTS:
            found[name] = (found[name] or 0.0) * window / known_seconds
        if not vertex.inputs:  # what a source takes in is not counted
            return {name: found[name] for name in ("outputs", "outputs_variance", "utilisation")}
        # Events wait in front of a task and are counted when it takes them: a busy one is offered more.
        return found | {"latency_seconds": found["service_seconds"], "latency_variance": None}


def _samples(samples: deque[FlinkSample], vertex: str, subtask: int) -> Iterator[WorkSample]:
    """From check to check, where all is known and no counter fell."""
    for before, after in pairwise(samples):
        elapsed = after.at - before.at
        was, now = before.values[vertex][subtask], after.values[vertex][subtask]
        if None in was or None in now or elapsed <= 0:
            continue
        came, gave = now[0] - was[0], now[1] - was[1]  # type: ignore[operator]
        if min(came, gave) >= 0:
            busy_seconds = min(1.0, max(0.0, now[2] / 1_000)) * elapsed  # type: ignore[operator]
            yield WorkSample(elapsed, came, round(came), round(gave), busy_seconds)


def job_of(document: Mapping[str, Any]) -> FlinkJob:
    """Of `/jobs/{id}`. Raises KeyError, TypeError or ValueError where it is something else."""
    inputs = {
        node["id"]: tuple(each["id"] for each in node.get("inputs", ())) for node in document["plan"]["nodes"]
    }
    vertices = tuple(
        Vertex(
            str(row["id"]),
            str(row["name"]),
            _tasks(row["parallelism"]),
            int(row["maxParallelism"]) if int(row["maxParallelism"]) > 0 else MOST_TASKS,
            inputs.get(row["id"], ()),
            str(row.get("slotSharingGroupId") or ""),
        )
        for row in document["vertices"]
    )
    if missing := {each for ids in inputs.values() for each in ids} - {each.id for each in vertices}:
        raise ValueError(f"no vertex has the id {min(map(str, missing))[:LONGEST_NAME]}")
    started = tuple((row["id"], row["parallelism"], row.get("start-time")) for row in document["vertices"])
    milliseconds = document.get("duration")
    seconds = milliseconds / 1_000 if is_number(milliseconds, 0) else None
    return FlinkJob(str(document["jid"]), vertices, (document["jid"], *started), seconds)


def _tasks(count: Any) -> int:
    """Raises ValueError for what would fill the memory."""
    if not 0 <= (found := int(count)) <= MOST_TASKS:
        raise ValueError(f"{found:.6g} tasks")
    return found


def named(vertices: tuple[Vertex, ...]) -> dict[str, Vertex]:
    """By names that are distinct, and fit into a map of operators."""
    found: dict[str, Vertex] = {}
    for vertex in vertices:
        plain = " ".join(vertex.name.replace(";", ",").split())[:LONGEST_NAME] or vertex.id
        name, number = plain, 2
        while name in found:
            name, number = f"{plain} {number}", number + 1
        found[name] = vertex
    return found


def _least(requirements: Mapping[str, Any], vertex: str) -> int:
    """The lower bound that it has; 1 where it has none."""
    try:
        return max(1, int(requirements[vertex]["parallelism"]["lowerBound"]))
    except (KeyError, TypeError, ValueError):
        return 1


def _number(text: Any) -> float | None:
    """Flink writes numbers as texts, and NaN for what it doesn't know. Another text is one unknown number."""
    try:
        value = measured_number(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
