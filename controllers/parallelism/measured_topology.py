"""A plant as operators, tasks, and channels, with measurements of one instant (Stutz, 4 and 5.2).

The logical graph has operators and links between them. A *path* leads from a source, which only brings events in, along
links to an operator without a further link. In the physical graph an operator has `parallelism` tasks, named `<name>_1`
to `<name>_<parallelism>`, and each task has a channel to every task of the next operators.

Counts cover the last `window_seconds`; for an operator they are the sum over its tasks, everything else is the mean
over the tasks with a value (Stutz, 4.2). Unknown values are None, never 0. A document (`to_document`, `from_document`)
is plain JSON.

Measures of a topology from outside, without those that nothing can use.

A bad number of an operator leaves only that number unknown.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import Any

from common.checks import is_number, shorten_for_message
from common.errors import BadInput
from common.parameter import Parameter, read_values

AGGREGATES: Mapping[str, Callable[[list[float]], float]] = {"AVG": fmean, "SUM": sum, "MAX": max, "MIN": min}
MAX_PATHS = 1_000
MAX_TASKS = 100_000
MAX_CHANNELS = 100_000
LATEST_SECONDS = 2.5e11  # since 1970: no calendar of the pages goes beyond the year 9892


def _measure(name: str, unit: str, help_text: str) -> Parameter:
    return Parameter(name, unit, help_text, None, 0, 1e18)


# Measures of a task.
MEASURES = (
    _measure("latency_seconds", "s", "Time from receiving an event to emitting it."),
    _measure("latency_variance", "s²", "Variance of the latency."),
    _measure("service_seconds", "s", "Time between the starts of two events while events wait."),
    _measure("service_variance", "s²", "Variance of the service time."),
    _measure("arrival_interval_seconds", "s", "Time between two arrivals."),
    _measure("arrival_interval_variance", "s²", "Variance of the arrival interval."),
    _measure("utilisation", "share", "Service time divided by arrival interval, or the share of busy time."),
    _measure("inputs", "events", "Events received in the window."),
    _measure("inputs_variance", "events²", "Variance of the counts within the window."),
    _measure("executions", "events", "Events processed in the window."),
    _measure("executions_variance", "events²", "Variance of the counts within the window."),
    _measure("outputs", "events", "Events emitted in the window."),
    _measure("outputs_variance", "events²", "Variance of the counts within the window."),
)
NAMES = tuple(measure_.name for measure_ in MEASURES)
COUNTS = ("inputs", "executions", "outputs")
OPERATOR_MEASURES = (
    Parameter("failed", "events", "For a source: events whose processing failed in the window.", None, 0, 1e18),
    Parameter("acked", "events", "For a source: events that were fully processed in the window.", None, 0, 1e18),
    Parameter("waiting", "events", "Events waiting for the operator; null: not counted.", None, 0, 1e18),
    Parameter(
        "batch_overhead_seconds", "s", "Fixed time of a batch, excluding its events; null: no batches.", None, 0, 1e6
    ),
)
LINK_MEASURES = (
    Parameter("latency_seconds", "s", "Time from sending to receiving.", None, 0, 1e12),
    Parameter("batching_seconds", "s", "Part of the latency spent in the sender's buffer.", None, 0, 1e12),
)
_OPERATOR = (
    Parameter("kind", "kind", "source: only emits events. operator: processes events.", None, kind="choice",
              choices=("source", "operator"), required=True),
    Parameter("parallelism", "tasks", "Current number of tasks.", None, 0, MAX_TASKS, "integer", required=True),
    Parameter("minimum", "tasks", "Minimum tasks that may be set.", 1, 0, MAX_TASKS, "integer"),
    Parameter("maximum", "tasks", "Maximum tasks that may be set.", MAX_TASKS, 0, MAX_TASKS, "integer"),
    Parameter("fixed", "sentence", "Reason why the tasks can't be set; null: they can.", None, kind="text"),
    *OPERATOR_MEASURES,
    Parameter("unknown_tasks", "sentence", "Reason why the number of tasks is unknown; null: known.", None,
              kind="text"),
    Parameter("tasks", "tasks", "Measurements by task, from the first.", (), kind="rows", items=MEASURES),
)  # fmt: skip
_LINK = (
    Parameter("source", "operator", "Sending operator.", None, kind="text", required=True),
    Parameter("target", "operator", "Receiving operator.", None, kind="text", required=True),
    Parameter("latency_seconds", "s", "Time from sending to receiving.", None, 0, 1e12),
    Parameter("batching_seconds", "s", "Part of the latency spent in the sender's buffer.", None, 0, 1e12),
)
DOCUMENT = (
    Parameter("plant", "name", "Plant of the topology.", None, kind="text", required=True),
    Parameter("at", "s since 1970", "Time of the measurement.", None, 0, LATEST_SECONDS, required=True),
    Parameter("window_seconds", "s", "Window of the counts.", None, 1e-3, 1e9, required=True),
    Parameter("holder", "name", "Client that sets tasks over the API; null: none.", None, kind="text"),
    Parameter("held_until", "s since 1970", "Expiry of control unless renewed.", None, 0, LATEST_SECONDS),
    Parameter("change_pause_seconds", "s", "Measured time that a change of tasks stops operators.", None, 0, 1e5),
    Parameter("operators", "by name", "All operators.", None, kind="map", required=True,
              items=(Parameter("operator", "operator", "One operator.", kind="object", items=_OPERATOR),)),
    Parameter("links", "links", "Links between operators.", (), kind="rows", items=_LINK),
)  # fmt: skip


@dataclass(frozen=True)
class MeasuredOperator:
    """One operator; `tasks` hold the measures of its tasks by name, the first task's first.

    unknown_tasks: why the number of tasks is not known; `parallelism` is 0 then.
    """

    name: str
    kind: str
    parallelism: int
    minimum: int = 1
    maximum: int = MAX_TASKS
    fixed: str | None = None
    failed: float | None = None
    acked: float | None = None
    tasks: tuple[Mapping[str, float | None], ...] = ()
    waiting: float | None = None
    unknown_tasks: str | None = None
    batch_overhead_seconds: float | None = None

    @property
    def known_parallelism(self) -> int | None:
        """Return the number of tasks; None if it is unknown."""
        return None if self.unknown_tasks is not None else self.parallelism

    @property
    def task_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}_{number}" for number in range(1, self.parallelism + 1))

    def group_by_task(self, measure: str) -> dict[str, float | None]:
        values = [task.get(measure) for task in self.tasks]
        values += [None] * (self.parallelism - len(values))
        return dict(zip(self.task_names, values, strict=False))

    def aggregate(self, measure: str, how: str) -> float | None:
        """Return AVG, SUM, MAX, or MIN over the tasks with a known value, or None if there is none."""
        known = [value for value in self.group_by_task(measure).values() if value is not None]
        return float(AGGREGATES[how](known)) if known else None

    def measure(self, name: str) -> float | None:
        """Return the operator's measure: a count as the sum, everything else as the mean."""
        return self.aggregate(name, "SUM" if name in COUNTS else "AVG")

    def check(self, tasks: object, field_name: str) -> int:
        """Return the number of tasks if it may be set. Raise `BadInput` saying what it takes."""
        if self.fixed is not None:
            raise BadInput(field_name, f"{self.name}'s tasks can't be set: {self.fixed}")
        if type(tasks) is not int or not self.minimum <= tasks <= self.maximum:
            what = f"must be a whole number from {self.minimum} to {self.maximum} (tasks of {self.name})"
            raise BadInput(field_name, f"{what}, not {tasks!r}")
        return tasks

    def to_document(self) -> dict[str, Any]:
        document = {operator_field.name: getattr(self, operator_field.name) for operator_field in _OPERATOR} | {
            "tasks": [{name: task.get(name) for name in NAMES} for task in self.tasks]
        }
        for name in ("unknown_tasks", "batch_overhead_seconds"):
            if document[name] is None:  # an older reader does not know the field
                del document[name]
        return document


@dataclass(frozen=True)
class Link:
    """Link from an operator to the next; the latency is that of the channels between their tasks."""

    source: str
    target: str
    latency_seconds: float | None = None
    batching_seconds: float | None = None


@dataclass(frozen=True)
class Channel:
    source: str
    target: str
    latency_seconds: float | None
    batching_seconds: float | None


@dataclass(frozen=True)
class MeasuredTopology:
    """Operators of a plant by name and their links at one instant.

    change_pause_seconds: how long a change of tasks has stopped operators, as measured; None: not measured. Raise
    `BadInput` for a link to an unknown operator, a cycle, or more than MAX_PATHS paths.
    """

    plant: str
    at: float
    window_seconds: float
    operators: Mapping[str, MeasuredOperator]
    links: tuple[Link, ...] = ()
    holder: str | None = None
    held_until: float | None = None
    change_pause_seconds: float | None = None
    _after: dict[str, list[str]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for place, link in enumerate(self.links):
            for end in (link.source, link.target):
                if end not in self.operators:
                    raise BadInput(f"links[{place}]", f"{end} is not an operator; known: {', '.join(self.operators)}")
            self._after.setdefault(link.source, []).append(link.target)
        self.paths  # noqa: B018  a cycle is found when the paths are

    @cached_property
    def paths(self) -> dict[str, tuple[str, ...]]:
        """Return `path1`, `path2`, … with their operators in order, one for each start without an incoming link."""
        fed = {link.target for link in self.links}
        starts = [name for name in self.operators if name not in fed]
        if self.operators and not starts:
            raise BadInput("links", "must not form a cycle: no operator is first on a path")
        paths: list[tuple[str, ...]] = []
        for start in starts:
            for path in self._walk_paths(start):
                if len(paths) == MAX_PATHS:
                    raise BadInput("links", f"must form at most {MAX_PATHS} paths")
                paths.append(path)
        if missed := set(self.operators) - {name for path in paths for name in path}:
            raise BadInput("links", f"must not form a cycle; {min(missed)} leads back to itself")
        return {f"path{number}": path for number, path in enumerate(paths, 1)}

    def _walk_paths(self, start: str) -> Iterator[tuple[str, ...]]:
        """Walk in depth without recursion, because a plant may be a long chain."""
        begun: list[tuple[str, ...]] = [(start,)]
        while begun:
            path = begun.pop()
            after = self._after.get(path[-1], [])
            if not after:
                yield path
            for name in reversed(after):
                if name in path:
                    raise BadInput("links", f"must not form a cycle; {name} leads back to itself")
                begun.append((*path, name))

    @property
    def channels(self) -> list[Channel]:
        """Return the channels between tasks.

        Raise `BadInput` if they would fill the memory: two operators with ten thousand tasks each have a hundred
        million.
        """
        count = sum(
            self.operators[link.source].parallelism * self.operators[link.target].parallelism for link in self.links
        )
        if count > MAX_CHANNELS:
            raise BadInput("plant", f"must have at most {MAX_CHANNELS:,} channels between its tasks, not {count:,}")
        return [
            Channel(source, target, link.latency_seconds, link.batching_seconds)
            for link in self.links
            for source in self.operators[link.source].task_names
            for target in self.operators[link.target].task_names
        ]

    def get_operator(self, name: str, field_name: str = "operator") -> MeasuredOperator:
        """Return the operator with that name. Raise `BadInput` naming the known ones."""
        if name not in self.operators:
            raise BadInput(field_name, f"{name} is not an operator; known: {', '.join(self.operators) or 'none'}")
        return self.operators[name]

    def check_tasks(self, tasks: Mapping[str, Any], field_name: str = "tasks") -> dict[str, int]:
        """Return the tasks by operator if all may be set. Raise `BadInput` naming the first that may not."""
        return {
            name: self.get_operator(name, f"{field_name}.{name}").check(count, f"{field_name}.{name}")
            for name, count in tasks.items()
        }

    def compute_path_latency_seconds(self, path: Sequence[str]) -> float | None:
        """Return the latency of an event on this path: operators and channels, without the source.

        Return None while one of them is unknown.
        """
        links = {(link.source, link.target): link.latency_seconds for link in self.links}
        between = [links[pair] for pair in pairwise(path)]
        within = [
            self.operators[name].measure("latency_seconds") for name in path if self.operators[name].kind != "source"
        ]
        values = [*between, *within]
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) and values else None

    def compute_source_latency_seconds(self, source: str) -> float | None:
        latencies = [self.compute_path_latency_seconds(path) for path in self.paths.values() if path[0] == source]
        known = [latency for latency in latencies if latency is not None]
        return fmean(known) if known else None

    def extract_part(self, names: Iterable[str]) -> "MeasuredTopology":
        kept = {name: self.operators[name] for name in names}
        links = tuple(link for link in self.links if link.source in kept and link.target in kept)
        return replace(self, operators=kept, links=links)

    def to_document(self) -> dict[str, Any]:
        return {
            "plant": self.plant,
            "at": self.at,
            "window_seconds": self.window_seconds,
            "holder": self.holder,
            "held_until": self.held_until,
            "change_pause_seconds": self.change_pause_seconds,
            "operators": {name: operator.to_document() for name, operator in self.operators.items()},
            "links": [dict(vars(link)) for link in self.links],
        }

    @classmethod
    def from_document(cls, document: object, where: str = "topology") -> "MeasuredTopology":
        """Read a document. Raise `BadInput` naming what is missing, unknown, or invalid."""
        read = read_values(DOCUMENT, document, where)
        operators = {name: _build_operator(name, row, where) for name, row in read["operators"].items()}
        links = tuple(Link(**row) for row in read["links"])
        return cls(**{**read, "operators": operators, "links": links})


def _build_operator(name: str, row: Mapping[str, Any], where: str) -> MeasuredOperator:
    if len(row["tasks"]) > row["parallelism"]:
        raise BadInput(
            f"{where}.operators.{name}.tasks", f"must have at most one entry per task ({row['parallelism']})"
        )
    return MeasuredOperator(name=name, **{**row, "tasks": tuple(row["tasks"])})


MAX_FAULTS = 50


def clear_unusable_measures(document: object) -> tuple[Any, list[str]]:
    """Return the document of a topology with unusable measures as null, and a sentence for each.

    Everything else is left as it is, for `MeasuredTopology.from_document` to judge.
    """
    faults: list[str] = []
    if not isinstance(document, Mapping):
        return document, faults
    result = dict(document)
    operators, links = document.get("operators"), document.get("links")
    if isinstance(operators, Mapping):
        result["operators"] = {
            name: _usable_operator(row, f"operators.{str(name)[:80]}", faults) for name, row in operators.items()
        }
    if isinstance(links, list):
        result["links"] = [_clear_unusable(row, LINK_MEASURES, f"links[{at}]", faults) for at, row in enumerate(links)]
    return result, faults[:MAX_FAULTS]


def _usable_operator(row: object, where: str, faults: list[str]) -> object:
    read = _clear_unusable(row, OPERATOR_MEASURES, where, faults)
    if not isinstance(read, Mapping) or not isinstance(read.get("tasks"), list):
        return read
    tasks = [_clear_unusable(task, MEASURES, f"{where}.tasks[{at}]", faults) for at, task in enumerate(read["tasks"])]
    return {**read, "tasks": tasks}


def _clear_unusable(row: object, measures: tuple[Parameter, ...], where: str, faults: list[str]) -> object:
    if not isinstance(row, Mapping):
        return row
    unusable = dict(_iterate_unusable(row, measures))
    faults += [
        f"{where}.{name}: must be a number from 0 to {most:g}, not {shorten_for_message(row[name])}."
        for name, most in unusable.items()
    ]
    return {**row, **dict.fromkeys(unusable)} if unusable else row


def _iterate_unusable(row: Mapping[str, Any], measures: tuple[Parameter, ...]) -> Iterator[tuple[str, float]]:
    for measure in measures:
        value, most = row.get(measure.name), float(measure.maximum or 0.0)
        if value is not None and not is_number(value, 0, most):
            yield measure.name, most
