"""What the sensors of a declared plant say, as operators, tasks and links (`MeasuredTopology`).

Rates are turned into counts of the window, an operator's tasks are taken as alike, and what follows from what
was measured is filled in: service time from utilisation and throughput (u = s·x / p), waiting time from what
waits (Little: w = n / x). What does not follow stays unknown.
"""

from collections.abc import Callable, Mapping

from controllers.parallelism.measured_topology import MOST_TASKS, Link, MeasuredOperator, MeasuredTopology
from workers.plants.foreign.declared.declaration import DeclaredOperator, PlantDeclaration, Quantity
from workers.plants.foreign.declared.sensor_reader import SensorReading
from workers.plants.plant import PlantConfused, PlantSilent

ONLY_BRINGS = "it only brings events in"
ONLY_SEEN = "the declaration names no call that sets it"
MOST_USED = 2.0
MOST_ROWS = 100  # of measures, of an operator of very many tasks: they have the sums of all
Known = Callable[[Quantity | None], float | None]


def topology_of(
    declaration: PlantDeclaration, readings: Mapping[str, SensorReading], plant: str, at: float
) -> MeasuredTopology:
    """Raises what a sensor raised, and PlantSilent or PlantConfused for tasks that are not known."""

    def known(quantity: Quantity | None) -> float | None:
        return _quantity(quantity, readings)

    given: dict[str, float | None] = {}  # what each operator gives on in a second
    operators: dict[str, MeasuredOperator] = {}
    links: list[Link] = []
    for declared in declaration.operators.values():
        if declared.is_source:
            operators[declared.name] = _source(declared, known, declaration.window_seconds)
            given[declared.name] = known(declared.measures.get("out_per_second"))
            continue
        rates = _rates(declared, known, given)
        given[declared.name] = rates[1]
        operators[declared.name] = _operator(declared, known, rates, declaration.window_seconds)
        wait = _wait_seconds(declared, known, rates)
        links += [Link(before, declared.name, wait) for before in declared.after]
    return MeasuredTopology(plant, at, declaration.window_seconds, operators, tuple(links))


def _quantity(quantity: Quantity | None, readings: Mapping[str, SensorReading]) -> float | None:
    """A number, or what a sensor says. Raises what it raised, and PlantConfused for less than nothing: of a
    difference or a -1 that stands for "not known" nothing follows.
    """
    if not isinstance(quantity, str):
        return quantity
    value = readings[quantity].known()
    if value is not None and value < 0:
        raise PlantConfused(
            f"Sensor {quantity} says {value:g}; what is measured of an operator is 0 or more."
        )
    return value


def tasks_of(declared: DeclaredOperator, known: Known) -> int:
    """How many there are now. Raises PlantSilent and PlantConfused."""
    value = known(declared.tasks)
    if value is None:
        raise PlantSilent(f"Sensor {declared.tasks} says nothing of the tasks of {declared.name}.")
    if value < 0 or value > MOST_TASKS or abs(value - round(value)) > 1e-6:
        raise PlantConfused(f"Sensor {declared.tasks} says that {declared.name} has {value:g} tasks.")
    return round(value)


def _source(declared: DeclaredOperator, known: Known, window_seconds: float) -> MeasuredOperator:
    out = known(declared.measures.get("out_per_second"))
    failed = known(declared.measures.get("failed_per_second"))
    acked = None if out is None or failed is None else max(0.0, out - failed)
    outputs = {"outputs": _count(out, window_seconds)}
    return MeasuredOperator(
        declared.name,
        "source",
        1,
        1,
        1,
        ONLY_BRINGS,
        _count(failed, window_seconds),
        _count(acked, window_seconds),
        (outputs,),
    )


def _rates(
    declared: DeclaredOperator, known: Known, given: Mapping[str, float | None]
) -> tuple[float | None, float | None]:
    """(what comes in, what goes out) in a second."""
    comes = known(declared.measures.get("in_per_second"))
    if comes is None and declared.after and "in_per_second" not in declared.measures:
        before = [given[name] for name in declared.after]
        comes = None if None in before else sum(each for each in before if each is not None)
    goes = known(declared.measures.get("out_per_second"))
    return comes, comes if goes is None and "out_per_second" not in declared.measures else goes


def _operator(
    declared: DeclaredOperator, known: Known, rates: tuple[float | None, float | None], window_seconds: float
) -> MeasuredOperator:
    tasks = tasks_of(declared, known)
    rows, (comes, goes) = min(tasks, MOST_ROWS), rates
    used, service = _used(declared, known), known(declared.measures.get("service_seconds"))
    if service is None and used is not None and goes:
        service = used * tasks / goes
    if used is None and service is not None and goes is not None and tasks:
        used = min(1.0, service * goes / tasks)
    latency = known(declared.measures.get("latency_seconds"))
    measures = {
        "latency_seconds": service if latency is None else latency,
        "service_seconds": service,
        "arrival_interval_seconds": tasks / comes if comes else None,
        "utilisation": used,
        "inputs": _count(comes, window_seconds, rows),
        "executions": _count(goes, window_seconds, rows),
        "outputs": _count(goes, window_seconds, rows),
    }
    fixed = None if declared.actuator else ONLY_SEEN
    return MeasuredOperator(
        declared.name,
        "operator",
        tasks,
        declared.minimum,
        declared.maximum,
        fixed,
        waiting=known(declared.measures.get("waiting_events")),
        tasks=(measures,) * rows,
    )


def _used(declared: DeclaredOperator, known: Known) -> float | None:
    """The share of the time in which a task works. Two numbers of which it is made may be of different
    instants; far beyond 1 it is something else, and service times made of it would be as many times too long.
    """
    used = known(declared.measures.get("utilisation"))
    if used is not None and used > MOST_USED:
        raise PlantConfused(
            f"The utilisation of {declared.name} is {used:g}; it is a share from 0 to 1: times: 0.01"
            " makes one of percent, times: 0.25 of four cores."
        )
    return None if used is None else min(1.0, used)


def _wait_seconds(
    declared: DeclaredOperator, known: Known, rates: tuple[float | None, float | None]
) -> float | None:
    seconds = known(declared.measures.get("waiting_seconds"))
    waiting = known(declared.measures.get("waiting_events"))
    if seconds is not None or waiting is None:
        return seconds
    rate = rates[0] or rates[1]
    return 0.0 if waiting == 0 else waiting / rate if rate else None


def _count(per_second: float | None, window_seconds: float, tasks: int = 1) -> float | None:
    return None if per_second is None or not tasks else max(0.0, per_second) * window_seconds / tasks
