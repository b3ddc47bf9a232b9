"""The sensor readings of a declared plant as operators, tasks, and links (`MeasuredTopology`).

Rates become counts of the window, and the tasks of an operator are assumed to be alike. Measures that follow from
others are computed: service time from utilization and throughput (u = s·x / p), waiting time from the backlog (Little:
w = n / x). A measure that does not follow stays unknown.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from controllers.parallelism.measured_topology import MAX_TASKS, Link, MeasuredOperator, MeasuredTopology
from workers.plants.foreign.declared.declaration import SHARE, DeclaredOperator, PlantDeclaration
from workers.plants.foreign.declared.sensor_reader import SensorReading
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

MAX_USED = 2.0
MAX_ROWS = 100  # rows of measures of an operator with very many tasks: they contain the sums of all
MAX_MEASURED = 1e12  # limit of a declaration
MAX_TASK_MEASURE = 1e18
Readings = Mapping[str, SensorReading]
Known = Callable[[str], float | None]  # a measure of an operator; None if it is unknown, unusable, or not declared


def build_topology(declaration: PlantDeclaration, readings: Readings, plant: str, at: float) -> MeasuredTopology:
    """Return the observation of the plant from its sensors.

    A measure that can't be had is unknown, and every other one stands; of an operator whose tasks are not known, what
    is measured of its tasks is unknown.

    Raises PlantUnavailable or InvalidPlantResponse where nothing is known.
    """
    is_silent = not any(reading.error is None and reading.value is not None for reading in readings.values())
    window = declaration.window_seconds
    outputs: dict[str, float | None] = {}  # of each operator, per second
    operators: dict[str, MeasuredOperator] = {}
    links: list[Link] = []
    for declared in declaration.operators.values():
        name = declared.name

        def known(measure: str, declared: DeclaredOperator = declared) -> float | None:
            quantity = declared.measures.get(measure)
            if not isinstance(quantity, str):
                return quantity
            reading = readings[quantity]
            is_usable = reading.error is None and not _explain_unusable_value(declared, measure, reading.value)
            return reading.value if is_usable else None

        if declared.is_source:
            operators[name] = _build_source(declared, known, window)
            outputs[name] = known("out_per_second")
            continue
        rates = _compute_rates(declared, known, outputs)
        outputs[name] = rates[1]
        try:
            operators[name] = _build_operator(declared, read_task_count(declared, readings), known, rates, window)
        except (PlantUnavailable, InvalidPlantResponse) as error:
            if is_silent:
                raise
            limits = (declared.minimum, declared.maximum, declared.fixed)
            waiting = known("waiting_events")
            operators[name] = MeasuredOperator(name, "operator", 0, *limits, waiting=waiting, unknown_tasks=str(error))
        links += [Link(before, name, _compute_wait_seconds(known, rates)) for before in declared.after]
    return MeasuredTopology(plant, at, window, operators, tuple(links))


def mark_unusable_readings(declaration: PlantDeclaration, readings: Readings) -> Readings:
    """Return the readings; a reading that is unusable as a measure keeps its value and gets the reason."""
    judged = dict(readings)
    for declared in declaration.operators.values():
        for measure, sensor in declared.measures.items():
            if not isinstance(sensor, str) or readings[sensor].error is not None:
                continue
            if why := _explain_unusable_value(declared, measure, readings[sensor].value):
                error = InvalidPlantResponse(f"Sensor {sensor} returned {why}")
                judged[sensor] = replace(readings[sensor], error=error)
    return judged


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


def read_task_count(declared: DeclaredOperator, readings: Readings) -> int:
    """Return the current number of tasks. Raise `PlantUnavailable` and `InvalidPlantResponse`."""
    quantity = declared.tasks
    value = readings[quantity].get_value() if isinstance(quantity, str) else quantity
    if value is None:
        raise PlantUnavailable(f"Sensor {quantity} returned no task count for {declared.name}.")
    if value < 0 or value > MAX_TASKS or abs(value - round(value)) > 1e-6:
        raise InvalidPlantResponse(
            f"Sensor {quantity} returned {value:g} tasks for {declared.name}. The count must be a whole"
            f" number from 0 to {MAX_TASKS:,}."
        )
    return round(value)


def _build_source(declared: DeclaredOperator, known: Known, window_seconds: float) -> MeasuredOperator:
    out, failed = known("out_per_second"), known("failed_per_second")
    acked = None if out is None or failed is None else max(0.0, out - failed)
    counts = [_count(rate, window_seconds) for rate in (failed, acked, out)]
    tasks = ({"outputs": counts[2]},)
    return MeasuredOperator(declared.name, "source", 1, 1, 1, declared.fixed, counts[0], counts[1], tasks)


def _compute_rates(
    declared: DeclaredOperator, known: Known, outputs: Mapping[str, float | None]
) -> tuple[float | None, float | None]:
    """Return (arrivals, output) per second."""
    comes = known("in_per_second")
    if comes is None and declared.after and "in_per_second" not in declared.measures:
        before = [outputs[name] for name in declared.after]
        comes = None if None in before else sum(rate for rate in before if rate is not None)
    goes = known("out_per_second")
    return comes, comes if goes is None and "out_per_second" not in declared.measures else goes


def _build_operator(
    declared: DeclaredOperator,
    tasks: int,
    known: Known,
    rates: tuple[float | None, float | None],
    window_seconds: float,
) -> MeasuredOperator:
    rows, (comes, goes) = min(tasks, MAX_ROWS), rates
    used, service, latency = known(SHARE), known("service_seconds"), known("latency_seconds")
    # Two numbers of which the share is made may be of different instants, so a little more than 1 is 1.
    used = None if used is None else min(1.0, used)
    if service is None and used is not None and goes:
        service = used * tasks / goes
    if used is None and service is not None and goes is not None and tasks:
        used = min(1.0, service * goes / tasks)
    measures = {
        "latency_seconds": latency if "latency_seconds" in declared.measures else service,
        "service_seconds": service,
        "arrival_interval_seconds": tasks / comes if comes else None,
        "utilisation": used,
        "inputs": _count(comes, window_seconds, rows),
        "executions": _count(goes, window_seconds, rows),
        "outputs": _count(goes, window_seconds, rows),
    }
    task = {name: _drop_excessive_value(value, MAX_TASK_MEASURE) for name, value in measures.items()}
    limits = (declared.minimum, declared.maximum, declared.fixed)
    return MeasuredOperator(
        declared.name, "operator", tasks, *limits, waiting=known("waiting_events"), tasks=(task,) * rows
    )


def _compute_wait_seconds(known: Known, rates: tuple[float | None, float | None]) -> float | None:
    seconds, waiting = known("waiting_seconds"), known("waiting_events")
    if seconds is not None or waiting is None:
        return seconds
    rate = rates[0] or rates[1]
    return 0.0 if waiting == 0 else _drop_excessive_value(waiting / rate, MAX_MEASURED) if rate else None


def _drop_excessive_value(value: float | None, most: float) -> float | None:
    """Return the value, or None beyond the limit of a topology, such as an interval if arrivals are close to 0."""
    return None if value is None or value > most else value


def _count(per_second: float | None, window_seconds: float, tasks: int = 1) -> float | None:
    return None if per_second is None or not tasks else max(0.0, per_second) * window_seconds / tasks
