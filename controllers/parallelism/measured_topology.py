"""A plant as operators, tasks and channels, with what is measured of them at one instant (Stutz, 4 and 5.2).

The logical graph: operators, and links between them. A *path* leads from a source, which only brings events
in, along links to an operator without any further. The physical graph: an operator has `parallelism` tasks,
named `<name>_1` to `<name>_<parallelism>`, and each task a channel to every task of the operators after it.

Counts are of the last `window_seconds`; of an operator they are the sum over its tasks, all else the mean
over those that have it (Stutz, 4.2). What is not known is None, never 0. A document (`to_document`,
`from_document`) is plain JSON.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import Any

from controllers.framework.parameter import Parameter, read_values
from queues.errors import BadInput

AGGREGATES: Mapping[str, Callable[[list[float]], float]] = {"AVG": fmean, "SUM": sum, "MAX": max, "MIN": min}
MOST_PATHS = 1_000
MOST_TASKS = 100_000
MOST_CHANNELS = 100_000
LATEST_SECONDS = 2.5e11  # since 1970: later than the year 9892 is in no calendar that pages know


def _measure(name: str, unit: str, help_text: str) -> Parameter:
    return Parameter(name, unit, help_text, None, 0, 1e18)


# Of a task.
MEASURES = (
    _measure("latency_seconds", "s", "From an event's being taken to its being given on."),
    _measure("latency_variance", "s²", "Of its latencies."),
    _measure("service_seconds", "s", "Between the takings of two events, while there are any."),
    _measure("service_variance", "s²", "Of its service times."),
    _measure("arrival_interval_seconds", "s", "Between the arrivals of two events."),
    _measure("arrival_interval_variance", "s²", "Of these intervals."),
    _measure("utilisation", "share", "Service time over arrival interval, or the time it worked."),
    _measure("inputs", "events", "That came to it in the window."),
    _measure("inputs_variance", "events²", "Of the counts within the window."),
    _measure("executions", "events", "That it worked in the window."),
    _measure("executions_variance", "events²", "Of the counts within the window."),
    _measure("outputs", "events", "That it gave on in the window."),
    _measure("outputs_variance", "events²", "Of the counts within the window."),
)
NAMES = tuple(each.name for each in MEASURES)
COUNTS = ("inputs", "executions", "outputs")
OPERATOR_MEASURES = (
    Parameter("failed", "events", "Of a source: whose work failed in the window.", None, 0, 1e18),
    Parameter("acked", "events", "Of a source: that were worked to their end in the window.", None, 0, 1e18),
    Parameter("waiting", "events", "In front of it now; null: not counted.", None, 0, 1e18),
)
LINK_MEASURES = (
    Parameter("latency_seconds", "s", "From being given to being taken.", None, 0, 1e12),
    Parameter("batching_seconds", "s", "Of it, in the giver's buffer.", None, 0, 1e12),
)
_OPERATOR = (
    Parameter("kind", "kind", "A source only brings events in.", None, kind="choice",
              choices=("source", "operator"), required=True),
    Parameter("parallelism", "tasks", "Now.", None, 0, MOST_TASKS, "integer", required=True),
    Parameter("minimum", "tasks", "That may be set.", 1, 0, MOST_TASKS, "integer"),
    Parameter("maximum", "tasks", "That may be set.", MOST_TASKS, 0, MOST_TASKS, "integer"),
    Parameter("fixed", "sentence", "Why its tasks can't be set; null: they can.", None, kind="text"),
    *OPERATOR_MEASURES,
    Parameter("unknown_tasks", "sentence", "Why it is not known how many it has; null: it is known.", None,
              kind="text"),
    Parameter("tasks", "tasks", "What is measured of each, from the first.", (), kind="rows", items=MEASURES),
)  # fmt: skip
_LINK = (
    Parameter("source", "operator", "That gives.", None, kind="text", required=True),
    Parameter("target", "operator", "That takes.", None, kind="text", required=True),
    Parameter("latency_seconds", "s", "From being given to being taken.", None, 0, 1e12),
    Parameter("batching_seconds", "s", "Of it, in the giver's buffer.", None, 0, 1e12),
)
DOCUMENT = (
    Parameter("plant", "name", "Whose topology it is.", None, kind="text", required=True),
    Parameter("at", "s since 1970", "When it was measured.", None, 0, LATEST_SECONDS, required=True),
    Parameter("window_seconds", "s", "Over which counts are.", None, 1e-3, 1e9, required=True),
    Parameter("holder", "name", "Who steers it through the control API; null: nobody.", None, kind="text"),
    Parameter("held_until", "s since 1970", "Or until it is renewed.", None, 0, LATEST_SECONDS),
    Parameter("operators", "by name", "All of them.", None, kind="map", required=True,
              items=(Parameter("operator", "operator", "One.", kind="object", items=_OPERATOR),)),
    Parameter("links", "links", "Between operators.", (), kind="rows", items=_LINK),
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
    maximum: int = MOST_TASKS
    fixed: str | None = None
    failed: float | None = None
    acked: float | None = None
    tasks: tuple[Mapping[str, float | None], ...] = ()
    waiting: float | None = None
    unknown_tasks: str | None = None

    @property
    def known_parallelism(self) -> int | None:
        """How many tasks it has; None where that is not known."""
        return None if self.unknown_tasks is not None else self.parallelism

    @property
    def task_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}_{number}" for number in range(1, self.parallelism + 1))

    def by_task(self, measure: str) -> dict[str, float | None]:
        """The measure of each task, by the task's name."""
        values = [task.get(measure) for task in self.tasks]
        values += [None] * (self.parallelism - len(values))
        return dict(zip(self.task_names, values, strict=False))

    def aggregate(self, measure: str, how: str) -> float | None:
        """AVG, SUM, MAX or MIN over the tasks of which the measure is known; None when it is of none."""
        known = [value for value in self.by_task(measure).values() if value is not None]
        return float(AGGREGATES[how](known)) if known else None

    def measure(self, name: str) -> float | None:
        """The operator's: a count summed, all else the mean."""
        return self.aggregate(name, "SUM" if name in COUNTS else "AVG")

    def check(self, tasks: Any, field_name: str) -> int:
        """As many tasks, when they may be set so. Raises `BadInput` saying what it takes."""
        if self.fixed is not None:
            raise BadInput(field_name, f"{self.name}'s tasks can't be set: {self.fixed}")
        if type(tasks) is not int or not self.minimum <= tasks <= self.maximum:
            what = f"takes a whole number from {self.minimum} to {self.maximum} (tasks of {self.name})"
            raise BadInput(field_name, f"{what}, not {tasks!r}")
        return tasks

    def to_document(self) -> dict[str, Any]:
        document = {each.name: getattr(self, each.name) for each in _OPERATOR} | {
            "tasks": [{name: task.get(name) for name in NAMES} for task in self.tasks]
        }
        if self.unknown_tasks is None:  # an older reader does not know the field
            del document["unknown_tasks"]
        return document


@dataclass(frozen=True)
class Link:
    """From an operator to one after it; latency of the channels between their tasks."""

    source: str
    target: str
    latency_seconds: float | None = None
    batching_seconds: float | None = None


@dataclass(frozen=True)
class Channel:
    """From a task to a task."""

    source: str
    target: str
    latency_seconds: float | None
    batching_seconds: float | None


@dataclass(frozen=True)
class MeasuredTopology:
    """A plant's operators by name and their links, all of one instant. Raises `BadInput` for a link to an
    operator that is not there, a cycle, or more than MOST_PATHS paths.
    """

    plant: str
    at: float
    window_seconds: float
    operators: Mapping[str, MeasuredOperator]
    links: tuple[Link, ...] = ()
    holder: str | None = None
    held_until: float | None = None
    _after: dict[str, list[str]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for place, link in enumerate(self.links):
            for end in (link.source, link.target):
                if end not in self.operators:
                    raise BadInput(
                        f"links[{place}]", f"{end} is no operator; known: {', '.join(self.operators)}"
                    )
            self._after.setdefault(link.source, []).append(link.target)
        self.paths  # noqa: B018  a cycle is found when the paths are

    @cached_property
    def paths(self) -> dict[str, tuple[str, ...]]:
        """`path1`, `path2`, … → operators in their order, from each that nobody feeds."""
        fed = {link.target for link in self.links}
        starts = [name for name in self.operators if name not in fed]
        if self.operators and not starts:
            raise BadInput("links", "lead in a circle: no operator is a path's first")
        found: list[tuple[str, ...]] = []
        for start in starts:
            for path in self._from(start):
                if len(found) == MOST_PATHS:
                    raise BadInput("links", f"make more than {MOST_PATHS} paths")
                found.append(path)
        if missed := set(self.operators) - {name for path in found for name in path}:
            raise BadInput("links", f"lead from {min(missed)} back to it; a topology takes no cycle")
        return {f"path{number}": path for number, path in enumerate(found, 1)}

    def _from(self, start: str) -> Iterator[tuple[str, ...]]:
        """In depth, without recursion: a plant may be a long chain."""
        begun: list[tuple[str, ...]] = [(start,)]
        while begun:
            path = begun.pop()
            after = self._after.get(path[-1], [])
            if not after:
                yield path
            for name in reversed(after):
                if name in path:
                    raise BadInput("links", f"lead from {name} back to it; a topology takes no cycle")
                begun.append((*path, name))

    @property
    def channels(self) -> list[Channel]:
        """From each task to each task of the operators after it. Raises `BadInput` where they would fill the
        memory: two operators of ten thousand tasks have a hundred million between them.
        """
        count = sum(
            self.operators[link.source].parallelism * self.operators[link.target].parallelism
            for link in self.links
        )
        if count > MOST_CHANNELS:
            raise BadInput("plant", f"has {count:,} channels between its tasks, more than {MOST_CHANNELS:,}")
        return [
            Channel(source, target, link.latency_seconds, link.batching_seconds)
            for link in self.links
            for source in self.operators[link.source].task_names
            for target in self.operators[link.target].task_names
        ]

    def operator(self, name: Any, field_name: str = "operator") -> MeasuredOperator:
        """By its name. Raises `BadInput` naming the known ones."""
        if name not in self.operators:
            raise BadInput(field_name, f"{name} is no operator; known: {', '.join(self.operators) or 'none'}")
        return self.operators[name]

    def check_tasks(self, tasks: Mapping[str, Any], field_name: str = "tasks") -> dict[str, int]:
        """Tasks by operator, when all may be set so. Raises `BadInput` naming the first that may not."""
        return {
            name: self.operator(name, f"{field_name}.{name}").check(count, f"{field_name}.{name}")
            for name, count in tasks.items()
        }

    def path_latency_seconds(self, path: Sequence[str]) -> float | None:
        """Of an event that takes this path: operators' and channels' latencies, but for the source's. None
        while one of them is not known.
        """
        links = {(link.source, link.target): link.latency_seconds for link in self.links}
        between = [links[pair] for pair in pairwise(path)]
        within = [
            self.operators[name].measure("latency_seconds")
            for name in path
            if self.operators[name].kind != "source"
        ]
        return _sum([*between, *within])

    def source_latency_seconds(self, source: str) -> float | None:
        """The mean over the paths from this source of which it is known."""
        latencies = [self.path_latency_seconds(path) for path in self.paths.values() if path[0] == source]
        known = [each for each in latencies if each is not None]
        return fmean(known) if known else None

    def part(self, names: Iterable[str]) -> "MeasuredTopology":
        """Only these operators, and the links between them."""
        kept = {name: self.operators[name] for name in names}
        links = tuple(each for each in self.links if each.source in kept and each.target in kept)
        return MeasuredTopology(
            self.plant, self.at, self.window_seconds, kept, links, self.holder, self.held_until
        )

    def to_document(self) -> dict[str, Any]:
        return {
            "plant": self.plant,
            "at": self.at,
            "window_seconds": self.window_seconds,
            "holder": self.holder,
            "held_until": self.held_until,
            "operators": {name: each.to_document() for name, each in self.operators.items()},
            "links": [dict(vars(link)) for link in self.links],
        }

    @classmethod
    def from_document(cls, document: Any, where: str = "topology") -> "MeasuredTopology":
        """Raises `BadInput` naming what is missing, unknown or not what it should be."""
        read = read_values(DOCUMENT, document, where)
        operators = {name: _operator(name, row, where) for name, row in read["operators"].items()}
        links = tuple(Link(**row) for row in read["links"])
        return cls(**{**read, "operators": operators, "links": links})


def _operator(name: str, row: Mapping[str, Any], where: str) -> MeasuredOperator:
    if len(row["tasks"]) > row["parallelism"]:
        raise BadInput(
            f"{where}.operators.{name}.tasks", f"takes at most one per task ({row['parallelism']})"
        )
    return MeasuredOperator(name=name, **{**row, "tasks": tuple(row["tasks"])})


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) and values else None
