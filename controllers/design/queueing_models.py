"""Queueing models with product form: closed networks of one class or several, open networks, and M/M/m/K.

A station has `servers` m (0: a delay station without waiting), a service time S [s], and visits V per pass; its demand
is D = V S. All times are means; service is exponential or the station is a delay.

Closed, one class, N customers, think time Z (Buzen's convolution):

    f_k(n) = D_k^n / Π_{i ≤ n} min(i, m_k)        a delay station divides by n!, and so does thinking
    G = f_1 * f_2 * … * f_K * f_Z                 throughput X = G(N-1) / G(N)
    P(n at k) = f_k(n) G_{without k}(N-n) / G(N)

in logarithms throughout: the textbook mean value analysis of a station with several servers computes the probability of
an empty station by subtraction, which drifts above about 50 customers (ERRATA E14).

Closed, several classes: exact mean value analysis over all population vectors; each station has one server or is a
delay. Open: each station is an M/M/m queue at the rate λ V. One station with room for K: M/M/m/K.

The network model of `manage.py design network`.

It takes a document, and returns the throughput and the state of each station.

| document | model |
|---|---|
| stations, customers, think_seconds | closed, one class |
| stations, classes | closed, several classes, each with customers, think time, service, and visits |
| stations, arrivals_per_second | open |
| one station, arrivals_per_second, capacity | M/M/m/K |
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from common.errors import BadInput
from common.parameter import Parameter, read_document
from controllers.framework.decision import Json

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Station:
    name: str
    servers: int
    service_seconds: float
    visits: float = 1.0

    @property
    def demand_seconds(self) -> float:
        return self.visits * self.service_seconds


@dataclass(frozen=True)
class Customers:
    """One class: the number of customers, their think time, and the service time of each visit."""

    name: str
    count: int
    think_seconds: float
    service_seconds: Mapping[str, float]
    visits: Mapping[str, float]


@dataclass(frozen=True)
class AtStation:
    """State of a station.

    The utilization of a delay station is the mean number there; residence and waiting are per visit.
    """

    utilisation: float
    residence_seconds: float
    queue_length: float
    waiting_seconds: float = 0.0
    empty_probability: float | None = None


@dataclass(frozen=True)
class Solution:
    """Throughput of passes, the state of each station, and the share that was turned away for lack of room."""

    throughput_per_second: float
    stations: Mapping[str, AtStation]
    blocked_share: float = 0.0


def solve_closed(stations: Sequence[Station], customers: int, think_seconds: float = 0.0) -> Solution:
    """Solve N circulating customers of one class; see the module for the formulas. O(K N²)."""
    if customers == 0:
        return Solution(0.0, {station_.name: AtStation(0.0, station_.service_seconds, 0.0) for station_ in stations})
    thinking = Station("", 0, think_seconds)
    terms = [_log_terms(station_, customers) for station_ in (*stations, thinking)]
    before, after = _convolve_prefixes(terms), _convolve_prefixes(terms[::-1])[::-1]
    whole = before[-1]
    throughput = math.exp(whole[customers - 1] - whole[customers])
    results = {}
    for at, station in enumerate(stations):
        others = _convolve(before[at], after[at + 1])
        chances = np.exp(terms[at] + others[::-1] - whole[customers])
        length = float(chances @ np.arange(len(chances)))
        visits = throughput * station.visits
        busy = throughput * station.demand_seconds
        residence = length / visits if visits > 0 else station.service_seconds
        results[station.name] = AtStation(
            busy / station.servers if station.servers else busy,
            residence,
            length,
            max(0.0, residence - station.service_seconds),
            float(chances[0]),
        )
    return Solution(throughput, results)


def compute_throughput(stations: Sequence[Station], customers: int, think_seconds: float = 0.0) -> Floats:
    """Return the passes per second for 1, 2, … customers, all at once."""
    terms = [_log_terms(station, customers) for station in (*stations, Station("", 0, think_seconds))]
    whole = _convolve_prefixes(terms)[-1]
    return np.asarray(np.exp(whole[:-1] - whole[1:]))


def _log_terms(station: Station, customers: int) -> Floats:
    """Return log f_k(0…N)."""
    numbers = np.arange(1, customers + 1, dtype=float)
    rates = np.minimum(numbers, station.servers) if station.servers else numbers
    if station.demand_seconds <= 0:
        return np.concatenate([[0.0], np.full(customers, -np.inf)])
    return np.concatenate([[0.0], np.cumsum(np.log(station.demand_seconds) - np.log(rates))])


def _convolve_prefixes(terms: Sequence[Floats]) -> list[Floats]:
    empty = np.full(len(terms[0]), -np.inf)
    empty[0] = 0.0
    prefixes = [empty]
    for term in terms:
        prefixes.append(_convolve(prefixes[-1], term))
    return prefixes


def _convolve(left: Floats, right: Floats) -> Floats:
    """Return log Σ_i exp(left_i + right_{n-i})."""
    return np.asarray([np.logaddexp.reduce(left[: n + 1] + right[n::-1]) for n in range(len(left))])


def solve_closed_classes(stations: Sequence[Station], classes: Sequence[Customers]) -> Mapping[str, Solution]:
    """Return the throughput and stations of each class, by exact mean value analysis.

    R_{c,k}(n) = S_{c,k} (1 + Q_k(n - e_c)) at a station with one server, S_{c,k} at a delay; X_c = n_c / (Z_c + Σ V R);
    Q = Σ X V R. Raise `BadInput` for a station with more servers.
    """
    for at, station in enumerate(stations):
        if station.servers > 1:
            raise BadInput(f"stations[{at}].servers", "must be 0 or 1 with several classes")
    service = np.asarray([[klass.service_seconds[s.name] for s in stations] for klass in classes])
    visits = np.asarray([[klass.visits[s.name] for s in stations] for klass in classes])
    queues: dict[tuple[int, ...], Floats] = {}
    one = np.asarray([station.servers == 1 for station in stations])
    rates, residence = np.zeros(len(classes)), np.zeros_like(service)
    for population in product(*(range(klass.count + 1) for klass in classes)):
        rates, residence = np.zeros(len(classes)), service.copy()
        for at, count in enumerate(population):
            if count:
                fewer = (*population[:at], count - 1, *population[at + 1 :])
                residence[at] = service[at] * (1 + np.where(one, queues[fewer], 0.0))
                rates[at] = count / (classes[at].think_seconds + float(visits[at] @ residence[at]))
        queues[population] = (rates[:, None] * visits * residence).sum(axis=0)
    return {
        each.name: _build_class_solution(stations, rates[at], visits[at], service[at], residence[at])
        for at, each in enumerate(classes)
    }


def _build_class_solution(
    stations: Sequence[Station], rate: float, visits: Floats, service: Floats, residence: Floats
) -> Solution:
    results = {
        station.name: AtStation(
            float(rate * visits[at] * service[at]),
            float(residence[at]),
            float(rate * visits[at] * residence[at]),
            float(residence[at] - service[at]),
        )
        for at, station in enumerate(stations)
    }
    return Solution(float(rate), results)


def open_network(stations: Sequence[Station], arrivals_per_second: float) -> Solution:
    """Solve every station separately, at the arrivals times its visits.

    Raise `BadInput` for a station that can't keep up.
    """
    results = {}
    for at, station in enumerate(stations):
        rate = arrivals_per_second * station.visits
        work = rate * station.service_seconds
        if station.servers and work >= station.servers:
            raise BadInput(
                f"stations[{at}]",
                f"{station.name} receives {work:.4g} s of work per second and has {station.servers} "
                f"server(s); reduce the arrivals below "
                f"{station.servers / max(station.demand_seconds, 1e-300):.4g} per second",
            )
        results[station.name] = _evaluate_open_station(station, rate, work)
    return Solution(arrivals_per_second, results)


def _evaluate_open_station(station: Station, rate: float, work: float) -> AtStation:
    if station.servers == 0:
        return AtStation(work, station.service_seconds, work)
    empty, waits = erlang_c(station.servers, work)
    waiting = waits * station.service_seconds / (station.servers - work)
    residence = station.service_seconds + waiting
    return AtStation(work / station.servers, residence, rate * residence, waiting, empty)


def erlang_c(servers: int, work: float) -> tuple[float, float]:
    """Return the probabilities of an empty M/M/m station and of a wait; `work` = λ S < m.

    Uses Erlang's recursion for the loss system, B = aB / (i + aB), which neither overflows nor cancels.
    """
    lost = 1.0
    for count in range(1, servers + 1):
        lost = work * lost / (count + work * lost)
    waits = servers * lost / (servers - work * (1 - lost))
    if work == 0:
        return 1.0, 0.0
    numbers = np.arange(1, servers)
    logs = np.concatenate([[0.0], np.cumsum(math.log(work) - np.log(numbers))])
    last = logs[-1] + math.log(work / servers) - math.log1p(-work / servers)
    return float(np.exp(-np.logaddexp(np.logaddexp.reduce(logs), last))), waits


def solve_limited(station: Station, arrivals_per_second: float, capacity: int) -> Solution:
    """Solve M/M/m/K: a customer who finds K others is turned away. Birth and death, in logarithms."""
    work = arrivals_per_second * station.service_seconds
    servers = station.servers or capacity
    steps = np.log(work) - np.log(np.minimum(np.arange(1, capacity + 1), servers)) if work > 0 else None
    logs = np.concatenate([[0.0], np.cumsum(steps)]) if steps is not None else np.zeros(1)
    chances = np.exp(logs - np.logaddexp.reduce(logs))
    blocked = float(chances[-1]) if len(chances) > capacity else 0.0
    rate = arrivals_per_second * (1 - blocked)
    length = float(chances @ np.arange(len(chances)))
    residence = length / rate if rate > 0 else station.service_seconds
    there = AtStation(
        rate * station.service_seconds / servers,
        residence,
        length,
        max(0.0, residence - station.service_seconds),
        float(chances[0]),
    )
    return Solution(rate, {station.name: there}, blocked)


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
