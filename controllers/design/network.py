"""The network model of `manage.py design network`.

It takes a document, and returns the throughput and the state of each station.

| document | model |
|---|---|
| stations, customers, think_seconds | closed, one class |
| stations, classes | closed, several classes, each with customers, think time, service, and visits |
| stations, arrivals_per_second | open |
| one station, arrivals_per_second, capacity | M/M/m/K |
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from common.errors import BadInput
from common.parameter import Parameter, read_document
from controllers.design.queueing_models import (
    Customers,
    Solution,
    Station,
    open_network,
    solve_closed,
    solve_closed_classes,
    solve_limited,
)
from controllers.framework.decision import Json

MAX_POPULATIONS = 200_000
MIN_MAGNITUDE = 1e-50
STATION = (
    Parameter("name", "name", "Name of the station.", kind="text", required=True),
    Parameter("servers", "servers", "Number of servers; 0 is a delay without waiting.", 1, 0, 100_000, "integer"),
    Parameter("service_seconds", "s", "Service time per visit.", 0.0, 0, 1e9),
    Parameter("visits", "visits", "Visits per pass through the network.", 1.0, 0, 1e9),
)
BY_STATION = Parameter("value", "by station", "Value for one station.", maximum=1e9)
CLASS = (
    Parameter("name", "name", "Name of the class.", kind="text", required=True),
    Parameter("customers", "customers", "Number of customers.", 1, 0, 5_000, "integer", required=True),
    Parameter("think_seconds", "s", "Think time between two passes.", 0.0, 0, 1e9),
    Parameter("service_seconds", "s", "Service time, by station.", {}, kind="map", items=(BY_STATION,)),
    Parameter("visits", "visits", "Visits, by station.", {}, kind="map", items=(BY_STATION,)),
)
INPUT = (
    Parameter("stations", "rows", "Stations of the network.", kind="rows", required=True, items=STATION),
    Parameter("customers", "customers", "Number of customers.", None, 0, 5_000, "integer"),
    Parameter("think_seconds", "s", "Think time between two passes.", 0.0, 0, 1e9),
    Parameter("classes", "rows", "Classes of customers.", None, kind="rows", items=CLASS),
    Parameter("arrivals_per_second", "1/s", "Arrivals of an open network.", None, 0, 1e12),
    Parameter(
        "capacity", "customers", "Capacity of the single station, including servers.", None, 1, 100_000, "integer"
    ),
)
KINDS = ("customers", "classes", "arrivals_per_second")


def answer(document: Any) -> dict[str, Json]:
    """Solve the model that the document describes. Raise `BadInput` naming the field."""
    given = read_document(INPUT, document)
    stations = [Station(**row) for row in given["stations"]]
    names = [station.name for station in stations]
    if not names:
        raise BadInput("stations", "must have at least one entry")
    _check_names(names, "stations")
    kinds = [kind for kind in KINDS if given[kind] is not None]
    if len(kinds) != 1:
        raise BadInput("document", f"must have exactly one of {', '.join(KINDS)}, not {' and '.join(kinds) or 'none'}")
    if given["capacity"] is not None and (len(stations) != 1 or given["arrivals_per_second"] is None):
        raise BadInput("capacity", "requires a single station and arrivals_per_second")
    idle = not given["think_seconds"] and not any(station.demand_seconds for station in stations)
    if given["customers"] is not None and idle:
        raise BadInput("stations", "must have a station with service and visits, or set think_seconds")
    sizes = {name: given[name] for name in ("think_seconds", "arrivals_per_second")}
    for at, row in enumerate(given["stations"]):
        sizes |= {f"stations[{at}].{name}": row[name] for name in ("service_seconds", "visits")}
    for at, row in enumerate(given["classes"] or ()):
        sizes[f"classes[{at}].think_seconds"] = row["think_seconds"]
        for name in ("service_seconds", "visits"):
            sizes |= {f"classes[{at}].{name}.{station}": value for station, value in row[name].items()}
    for field, value in sizes.items():
        if value is not None and 0 < value < MIN_MAGNITUDE:
            raise BadInput(field, f"must be 0 or at least {MIN_MAGNITUDE:g}, not {value:g}")
    if given["classes"] is not None:
        return _group_by_class(stations, given["classes"])
    if given["capacity"] is not None:
        return _format_solution(solve_limited(stations[0], given["arrivals_per_second"], given["capacity"]))
    if given["arrivals_per_second"] is not None:
        return _format_solution(open_network(stations, given["arrivals_per_second"]))
    return _format_solution(solve_closed(stations, given["customers"], given["think_seconds"]))


def _check_names(names: list[str], where: str) -> None:
    seen: set[str] = set()
    for at, name in enumerate(names):
        if name in seen:
            raise BadInput(f"{where}[{at}].name", f"{name} appears twice; names must differ")
        seen.add(name)


def _group_by_class(stations: list[Station], rows: list[Mapping[str, Any]]) -> dict[str, Json]:
    _check_names([row["name"] for row in rows], "classes")
    classes = [
        Customers(
            row["name"],
            row["customers"],
            row["think_seconds"],
            _read_by_station(stations, row["service_seconds"], f"classes[{at}].service_seconds", 0.0),
            _read_by_station(stations, row["visits"], f"classes[{at}].visits", 1.0),
        )
        for at, row in enumerate(rows)
    ]
    for at, each in enumerate(classes):
        if (
            each.count
            and not each.think_seconds
            and not any(seconds * each.visits[name] for name, seconds in each.service_seconds.items())
        ):
            raise BadInput(f"classes[{at}]", "must have a station with service and visits, or think_seconds")
    populations = 1
    for klass in classes:
        populations *= klass.count + 1
        if populations > MAX_POPULATIONS:
            raise BadInput(
                "classes", f"must have at most {MAX_POPULATIONS} combinations of customers; reduce the customers"
            )
    return {"classes": {name: _format_solution(each) for name, each in solve_closed_classes(stations, classes).items()}}


def _read_by_station(
    stations: list[Station], given: Mapping[str, float], where: str, default: float
) -> dict[str, float]:
    names = [station.name for station in stations]
    for name in given:
        if name not in names:
            raise BadInput(f"{where}.{name}", f"is not a station; the stations are {', '.join(names)}")
    return {name: float(given.get(name, default)) for name in names}


def _format_solution(solution: Solution) -> dict[str, Json]:
    return {
        "throughput_per_second": solution.throughput_per_second,
        "stations": {name: asdict(each) for name, each in solution.stations.items()},
        "blocked_share": solution.blocked_share,
    }
