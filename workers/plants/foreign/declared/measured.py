"""The sensor readings of a declared plant as operators, tasks, and links (`MeasuredTopology`).

Rates become counts of the window, and the tasks of an operator are assumed to be alike. Measures that follow from
others are computed: service time from utilization and throughput (u = s·x / p), waiting time from the backlog (Little:
w = n / x). A measure that does not follow stays unknown.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from controllers.parallelism.measured_topology import MAX_TASKS, Link, MeasuredOperator, MeasuredTopology
from workers.plants.foreign.declared.declaration import SHARE, DeclaredOperator, PlantDeclaration, Quantity
from workers.plants.foreign.declared.sensor_reader import SensorReading
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

ONLY_BRINGS = "a source of events, which has no tasks"
ONLY_SEEN = "the declaration has no call that sets it"
MAX_USED = 2.0
MAX_ROWS = 100  # rows of measures of an operator with very many tasks: they contain the sums of all
MAX_MEASURED = 1e12  # limit of a declaration
MAX_TASK_MEASURE = 1e18
Known = Callable[[Quantity | None], float | None]
# A measure of an operator by its name; None if it is unknown, unusable, or not declared.
KnownMeasure = Callable[[DeclaredOperator, str], float | None]


def build_topology(
    declaration: PlantDeclaration, readings: Mapping[str, SensorReading], plant: str, at: float
) -> MeasuredTopology:
    """Return the observation of the plant from its sensors.

    A measure that can't be had is unknown, and every other one stands; of an operator whose tasks are not known, what
    is measured of its tasks is unknown.

    Raises PlantUnavailable or InvalidPlantResponse where nothing is known.
    """
    is_silent = not any(reading.error is None and reading.value is not None for reading in readings.values())

    def get_quantity_value(quantity: Quantity | None) -> float | None:
        return readings[quantity].get_value() if isinstance(quantity, str) else quantity

    def read_optional(declared: DeclaredOperator, measure: str) -> float | None:
        return _find_usable_value(declared, measure, readings)

    given: dict[str, float | None] = {}  # the output of each operator per second
    operators: dict[str, MeasuredOperator] = {}
    links: list[Link] = []
    for declared in declaration.operators.values():
        if declared.is_source:
            operators[declared.name] = _build_source(declared, read_optional, declaration.window_seconds)
            given[declared.name] = read_optional(declared, "out_per_second")
            continue
        rates = _compute_rates(declared, read_optional, given)
        given[declared.name] = rates[1]
        try:
            count = read_task_count(declared, get_quantity_value)
            operators[declared.name] = _build_operator(
                declared, count, read_optional, rates, declaration.window_seconds
            )
        except (PlantUnavailable, InvalidPlantResponse) as error:
            if is_silent:
                raise
            operators[declared.name] = _build_uncounted_operator(declared, read_optional, str(error))
        wait = _wait_seconds(declared, read_optional, rates)
        links += [Link(before, declared.name, wait) for before in declared.after]
    return MeasuredTopology(plant, at, declaration.window_seconds, operators, tuple(links))


def mark_unusable_readings(
    declaration: PlantDeclaration, readings: Mapping[str, SensorReading]
) -> Mapping[str, SensorReading]:
    """Return the readings; a reading that is unusable as a measure keeps its value and gets the reason."""
    judged = dict(readings)
    for declared in declaration.operators.values():
        for measure, sensor in declared.measures.items():
            if not isinstance(sensor, str) or readings[sensor].error is not None:
                continue
            if why := _explain_unusable_value(declared, measure, readings[sensor].value):
                judged[sensor] = replace(
                    readings[sensor], error=InvalidPlantResponse(f"Sensor {sensor} returned {why}")
                )
    return judged


def _find_usable_value(declared: DeclaredOperator, measure: str, readings: Mapping[str, SensorReading]) -> float | None:
    quantity = declared.measures.get(measure)
    if not isinstance(quantity, str):
        return quantity
    reading = readings[quantity]
    is_usable = reading.error is None and not _explain_unusable_value(declared, measure, reading.value)
    return reading.value if is_usable else None


def _explain_unusable_value(declared: DeclaredOperator, measure: str, value: float | None) -> str:
    """Return why the value can't be the measure, or "" if it can.

    A difference, or a -1 that means "unknown", can't be used. A share far above 1 would make service times too long by
    the same factor.
    """
    if value is None:
        return ""
    if not 0 <= value <= MAX_MEASURED:
        return f"{value:g}; {measure} of {declared.name} must be 0 to {MAX_MEASURED:g}."
    if measure == SHARE and value > MAX_USED:
        return (
            f"{value:g}; {measure} of {declared.name} must be a share from 0 to 1. Convert percent with"
            " times: 0.01, and four cores with times: 0.25."
        )
    return ""


def read_task_count(declared: DeclaredOperator, known: Known) -> int:
    """Return the current number of tasks. Raise `PlantUnavailable` and `InvalidPlantResponse`."""
    value = known(declared.tasks)
    if value is None:
        raise PlantUnavailable(f"Sensor {declared.tasks} returned no task count for {declared.name}.")
    if value < 0 or value > MAX_TASKS or abs(value - round(value)) > 1e-6:
        raise InvalidPlantResponse(
            f"Sensor {declared.tasks} returned {value:g} tasks for {declared.name}; the count must be a whole"
            f" number from 0 to {MAX_TASKS:,}."
        )
    return round(value)


def _build_source(declared: DeclaredOperator, known: KnownMeasure, window_seconds: float) -> MeasuredOperator:
    out = known(declared, "out_per_second")
    failed = known(declared, "failed_per_second")
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


def _compute_rates(
    declared: DeclaredOperator, known: KnownMeasure, given: Mapping[str, float | None]
) -> tuple[float | None, float | None]:
    """Return (arrivals, output) per second."""
    comes = known(declared, "in_per_second")
    if comes is None and declared.after and "in_per_second" not in declared.measures:
        before = [given[name] for name in declared.after]
        comes = None if None in before else sum(operator for operator in before if operator is not None)
    goes = known(declared, "out_per_second")
    return comes, comes if goes is None and "out_per_second" not in declared.measures else goes


def _build_operator(
    declared: DeclaredOperator,
    tasks: int,
    known: KnownMeasure,
    rates: tuple[float | None, float | None],
    window_seconds: float,
) -> MeasuredOperator:
    rows, (comes, goes) = min(tasks, MAX_ROWS), rates
    used, service = _compute_utilization(declared, known), known(declared, "service_seconds")
    if service is None and used is not None and goes:
        service = used * tasks / goes
    if used is None and service is not None and goes is not None and tasks:
        used = min(1.0, service * goes / tasks)
    latency = known(declared, "latency_seconds")
    measures = {
        "latency_seconds": latency if "latency_seconds" in declared.measures else service,
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
        waiting=known(declared, "waiting_events"),
        tasks=({name: _drop_excessive_value(value, MAX_TASK_MEASURE) for name, value in measures.items()},) * rows,
    )


def _build_uncounted_operator(declared: DeclaredOperator, known: KnownMeasure, reason: str) -> MeasuredOperator:
    fixed = None if declared.actuator else ONLY_SEEN
    return MeasuredOperator(
        declared.name,
        "operator",
        0,
        declared.minimum,
        declared.maximum,
        fixed,
        waiting=known(declared, "waiting_events"),
        unknown_tasks=reason,
    )


def _compute_utilization(declared: DeclaredOperator, known: KnownMeasure) -> float | None:
    """Return the share of the time in which a task works.

    Two numbers of which it is made may be of different instants, so a little more than 1 is 1.
    """
    used = known(declared, SHARE)
    return None if used is None else min(1.0, used)


def _wait_seconds(
    declared: DeclaredOperator, known: KnownMeasure, rates: tuple[float | None, float | None]
) -> float | None:
    seconds = known(declared, "waiting_seconds")
    waiting = known(declared, "waiting_events")
    if seconds is not None or waiting is None:
        return seconds
    rate = rates[0] or rates[1]
    return 0.0 if waiting == 0 else _drop_excessive_value(waiting / rate, MAX_MEASURED) if rate else None


def _drop_excessive_value(value: float | None, most: float) -> float | None:
    """Return the value, or None if it exceeds the limit of a topology.

    That happens, for example, if arrivals are close to 0.
    """
    return None if value is None or value > most else value


def _count(per_second: float | None, window_seconds: float, tasks: int = 1) -> float | None:
    return None if per_second is None or not tasks else max(0.0, per_second) * window_seconds / tasks
