"""A declared plant as written in YAML, checked; see `examples/`.

| key | takes |
|---|---|
| name | a name: lowercase letter, then letters, digits, - (40 at most) |
| title | a description in one line |
| window_seconds | the window of counts (15) |
| prometheus | the address of the server for PromQL, or {url, secret_environment, secret_as} |
| sensors | {name: sensor} (`sensor`) |
| operators | list of operators, in the order in which events pass them |
| hold, release | calls that hold the plant's own controllers (for $seconds), and release them |

An operator has `name`, and `after`: the operators that it gets events from. A source has `source: true`,
`out_per_second` and `failed_per_second`. Any other operator has `tasks` (the current number), `minimum` (1), `maximum`,
and the measures that are known:

| measure | meaning |
|---|---|
| in_per_second | events that arrive at all of its tasks; default: the output of the operators before it |
| out_per_second | events that it emits; default: the events that arrive |
| service_seconds | time of one event in one task; default: from utilisation and out_per_second |
| latency_seconds | time from taking an event to emitting its result (service_seconds) |
| utilisation | share of the time in which a task works |
| waiting_events, waiting_seconds | backlog in front of it, or its waiting time (converted by Little's law) |

Each is the name of a sensor, or a number. Tasks are set by `set`, a call that contains $tasks (`call`); its inverse is
the same call with the former number of tasks. Or they are set by `up` and `down`, called once for each task (from
$before to $tasks, which differ by one); each is the inverse of the other. An operator without them is only observed.
`proof` says what shows that an order took effect: {sensor, within_seconds}, by default the sensor of its tasks, within
60 s.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from common import checks
from common.documents import read_yaml
from common.errors import BadInput
from workers.pipeline.declaration import fields
from workers.plants.foreign.declared.call import Call, TaskOrder, read_call
from workers.plants.foreign.declared.sensor import DeclaredSensor, read_sensor, read_server

SENSOR = re.compile(r"\A[a-z][a-z0-9_]{0,39}\Z")
OPERATOR = re.compile(r"\A[A-Za-z][A-Za-z0-9_.-]{0,59}\Z")
KEYS = ("name", "title", "window_seconds", "prometheus", "sensors", "operators", "hold", "release")
MAX_SENSORS, MAX_OPERATORS, MAX_TASKS, MAX_STEPS = 64, 32, 10_000, 64
WINDOW_SECONDS, PROOF_SECONDS = 15.0, 60.0
SOURCE_MEASURES = ("out_per_second", "failed_per_second")
MEASURES = (
    "in_per_second",
    "out_per_second",
    "service_seconds",
    "latency_seconds",
    "utilisation",
    "waiting_events",
    "waiting_seconds",
)
SHARE = "utilisation"
CALLS = ("set", "up", "down")
ONLY_BRINGS = "a source of events, which has no tasks"
ONLY_SEEN = "the declaration has no call that sets it"
Quantity = str | float  # the name of a sensor, or a number


@dataclass(frozen=True)
class Proof:
    """The sensor that must reach the ordered number of tasks within `within_seconds`."""

    sensor: str
    within_seconds: float


@dataclass(frozen=True)
class Actuator:
    """The calls that set tasks: one that sets any number, or one up and one down for each task."""

    set: Call | None = None
    up: Call | None = None
    down: Call | None = None

    @property
    def counts(self) -> bool:
        """Return whether the calls depend on the former number of tasks: made twice, they do too much."""
        return self.set is None or self.set.has_placeholder("change")

    def build_steps(self, order: TaskOrder) -> list[tuple[Call, TaskOrder]]:
        """Return the calls of an order, in sequence. Raise `BadInput` if they are too many at once."""
        if self.set is not None:
            return [(self.set, order)]
        change = order.tasks - order.before
        if abs(change) > MAX_STEPS:
            raise BadInput("tasks", f"must change by at most {MAX_STEPS} at once, not by {abs(change)}")
        step, call = (1, self.up) if change > 0 else (-1, self.down)
        assert call is not None  # a declaration has `set`, or both others
        return [(call, TaskOrder(at, at + step)) for at in range(order.before, order.tasks, step)]


@dataclass(frozen=True)
class DeclaredOperator:
    """An operator. measures: the known ones. actuator: None for an operator that is only observed."""

    name: str
    is_source: bool
    after: tuple[str, ...] = ()
    tasks: Quantity = 1.0
    minimum: int = 1
    maximum: int = 1
    measures: Mapping[str, Quantity] = field(default_factory=dict)
    actuator: Actuator | None = None
    proof: Proof | None = None

    @property
    def fixed(self) -> str | None:
        """Return why its tasks can't be set; None: they can."""
        return ONLY_BRINGS if self.is_source else None if self.actuator else ONLY_SEEN


@dataclass(frozen=True)
class PlantDeclaration:
    """A declaration, read and checked."""

    name: str
    title: str
    window_seconds: float
    sensors: Mapping[str, DeclaredSensor]
    operators: Mapping[str, DeclaredOperator]
    hold: Call | None = None
    release: Call | None = None


def parse_declaration(text: str) -> PlantDeclaration:
    """Read a declaration from YAML. Raise `BadInput`, naming the field and its line."""
    document = read_yaml(text, "declaration")
    try:
        return build_declaration(document.value)
    except BadInput as error:
        line = document.find_line(error.field)
        raise type(error)(error.field, f"{error.message.rstrip('.')} (line {line})") from None


def build_declaration(document: object) -> PlantDeclaration:
    """Read a declaration from a document. Raise `BadInput`, naming the field."""
    document = fields.check_mapping(document, "declaration", KEYS, required=("name",))
    server = read_server(document["prometheus"], "prometheus") if "prometheus" in document else None
    given = fields.validate_pairs(document.get("sensors", {}), "sensors", "name: sensor", MAX_SENSORS)
    sensors = {
        fields.validate_name(name, f"sensors.{name}", SENSOR): read_sensor(name, row, f"sensors.{name}", server)
        for name, row in given.items()
    }
    rows = fields.validate_items(document.get("operators", []), "operators", 0, MAX_OPERATORS)
    if not sensors and not rows:
        raise BadInput("sensors", "is missing; a plant has sensors, operators, or both")
    operators = [_read_operator(row, f"operators[{place}]", sensors) for place, row in enumerate(rows)]
    fields.check_distinct_names([operator.name for operator in operators], "operators")
    _check_order(operators)
    window_seconds = checks.accept_number(1, 3_600, "a number of seconds").validate(
        document.get("window_seconds", WINDOW_SECONDS), "window_seconds"
    )
    return PlantDeclaration(
        fields.validate_name(document["name"], "name", checks.PLANT_NAME),
        fields.validate_text(document["title"], "title") if "title" in document else "",
        float(window_seconds),
        sensors,
        {operator.name: operator for operator in operators},
        read_call(document["hold"], "hold") if "hold" in document else None,
        read_call(document["release"], "release") if "release" in document else None,
    )


def _check_order(operators: list[DeclaredOperator]) -> None:
    """Check that each operator follows those that it gets events from, which also excludes cycles."""
    before: set[str] = set()
    for place, operator in enumerate(operators):
        for at, name in enumerate(operator.after):
            if name not in before:
                known = ", ".join(sorted(before)) or "none"
                where = f"operators[{place}].after[{at}]"
                raise BadInput(where, f"must be an operator that is listed earlier ({known}), not {name!r}")
        before.add(operator.name)


def _read_operator(document: object, where: str, sensors: Mapping[str, DeclaredSensor]) -> DeclaredOperator:
    is_source = isinstance(document, Mapping) and document.get("source", False) is True
    if is_source:
        document = fields.check_mapping(document, where, ("name", "source", *SOURCE_MEASURES), required=("name",))
        name = fields.validate_name(document["name"], f"{where}.name", OPERATOR)
        return DeclaredOperator(name, True, measures=_read_measures(document, where, SOURCE_MEASURES, sensors))
    known = ("name", "after", "tasks", "minimum", "maximum", "proof", "source", *MEASURES, *CALLS)
    document = fields.check_mapping(document, where, known, required=("name", "tasks"))
    name = fields.validate_name(document["name"], f"{where}.name", OPERATOR)
    tasks = _read_quantity(document["tasks"], f"{where}.tasks", sensors)
    if not isinstance(tasks, str):
        checks.accept_whole_number(0, MAX_TASKS).validate(document["tasks"], f"{where}.tasks")
    actuator = _read_actuator(document, where)
    if actuator is not None and "maximum" not in document:
        raise BadInput(f"{where}.maximum", "is missing; set the maximum number of tasks")
    if actuator is not None and not isinstance(tasks, str):
        raise BadInput(f"{where}.tasks", "must be a sensor, so that Weir can observe changes of the number of tasks")
    minimum = checks.accept_whole_number(1, MAX_TASKS).validate(document.get("minimum", 1), f"{where}.minimum")
    maximum = checks.accept_whole_number(minimum, MAX_TASKS).validate(
        document.get("maximum", MAX_TASKS), f"{where}.maximum"
    )
    after = fields.validate_items(document.get("after", []), f"{where}.after", 0, MAX_OPERATORS)
    return DeclaredOperator(
        name,
        False,
        tuple(fields.validate_text(upstream_name, f"{where}.after") for upstream_name in after),
        tasks,
        minimum,
        maximum,
        _read_measures(document, where, MEASURES, sensors),
        actuator,
        _read_proof(document, where, tasks, sensors) if actuator is not None else None,
    )


def _read_measures(
    document: Mapping[str, Any], where: str, names: tuple[str, ...], sensors: Mapping[str, DeclaredSensor]
) -> dict[str, Quantity]:
    measures = {name: _read_quantity(document[name], f"{where}.{name}", sensors) for name in names if name in document}
    if not isinstance(measures.get(SHARE), str | None):
        checks.accept_number(0, 1, "a share").validate(document[SHARE], f"{where}.{SHARE}")
    return measures


def _read_quantity(value: object, where: str, sensors: Mapping[str, DeclaredSensor]) -> Quantity:
    if isinstance(value, str) and value in sensors:
        return value
    if isinstance(value, str):
        known = ", ".join(sensors) or "none"
        raise BadInput(where, f"must be the name of a sensor; known: {known}")
    return float(checks.accept_number(0, 1e12, "a sensor or a number").validate(value, where))


def _read_actuator(document: Mapping[str, Any], where: str) -> Actuator | None:
    given = [name for name in CALLS if name in document]
    if not given:
        return None
    if given not in (["set"], ["up", "down"]):
        raise BadInput(f"{where}.{given[0]}", "is an invalid combination: use `set`, or both `up` and `down`")
    calls = {name: read_call(document[name], f"{where}.{name}") for name in given}
    if given == ["set"] and not calls["set"].has_placeholder("tasks", "change"):
        raise BadInput(f"{where}.set", "must contain $tasks: otherwise every decision has the same effect")
    return Actuator(**calls)


def _read_proof(
    document: Mapping[str, Any], where: str, tasks: Quantity, sensors: Mapping[str, DeclaredSensor]
) -> Proof:
    given, at = document.get("proof", {}), f"{where}.proof"
    given = fields.check_mapping(given, at, ("sensor", "within_seconds"), required=())
    sensor = given.get("sensor", tasks)
    if sensor not in sensors:
        raise BadInput(f"{at}.sensor", f"must be the name of a sensor; known: {', '.join(sensors)}")
    within = checks.accept_number(1, 3_600, "a number of seconds").validate(
        given.get("within_seconds", PROOF_SECONDS), f"{at}.within_seconds"
    )
    return Proof(sensor, float(within))
