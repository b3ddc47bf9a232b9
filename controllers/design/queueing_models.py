"""Closed queueing networks with product form, and the answer of `manage.py design network`.

A station has `servers` m (0: a delay station without waiting), a service time S [s], and visits V per pass; its demand
is D = V S. All times are means; service is exponential or the station is a delay. For N customers with think time Z
(Buzen's convolution):

    f_k(n) = D_k^n / Π_{i ≤ n} min(i, m_k)        a delay station divides by n!, and so does thinking
    G = f_1 * f_2 * … * f_K * f_Z                 throughput X = G(N-1) / G(N)
    P(n at k) = f_k(n) G_{without k}(N-n) / G(N)

in logarithms throughout: the textbook mean value analysis of a station with several servers computes the probability of
an empty station by subtraction, which drifts above about 50 customers (ERRATA E14).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from common.errors import BadInput
from common.parameter import Parameter, read_document
from controllers.framework.decision import Json

Floats = npt.NDArray[np.float64]
MIN_MAGNITUDE = 1e-50
STATION = (
    Parameter("name", "name", "Name of the station.", kind="text", required=True),
    Parameter("servers", "servers", "Number of servers; 0 is a delay without waiting.", 1, 0, 100_000, "integer"),
    Parameter("service_seconds", "s", "Service time per visit.", 0.0, 0, 1e9),
    Parameter("visits", "visits", "Visits per pass through the network.", 1.0, 0, 1e9),
)
INPUT = (
    Parameter("stations", "rows", "Stations of the network.", kind="rows", required=True, items=STATION),
    Parameter("customers", "customers", "Number of customers.", None, 0, 5_000, "integer", required=True),
    Parameter("think_seconds", "s", "Think time between two passes.", 0.0, 0, 1e9),
)


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
class AtStation:
    """The utilization of a delay station is the mean number there; residence and waiting are per visit."""

    utilisation: float
    residence_seconds: float
    queue_length: float
    waiting_seconds: float = 0.0
    empty_probability: float | None = None


@dataclass(frozen=True)
class Solution:
    """`throughput_per_second` counts passes."""

    throughput_per_second: float
    stations: Mapping[str, AtStation]


def solve_closed(stations: Sequence[Station], customers: int, think_seconds: float = 0.0) -> Solution:
    """Solve N circulating customers of one class; see the module for the formulas. O(K N²)."""
    if customers == 0:
        return Solution(0.0, {station.name: AtStation(0.0, station.service_seconds, 0.0) for station in stations})
    terms = [_log_terms(station, customers) for station in (*stations, Station("", 0, think_seconds))]
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
    """Return the convolutions of none, the first, the first two, and so on."""
    empty = np.full(len(terms[0]), -np.inf)
    empty[0] = 0.0
    prefixes = [empty]
    for term in terms:
        prefixes.append(_convolve(prefixes[-1], term))
    return prefixes


def _convolve(left: Floats, right: Floats) -> Floats:
    """Return log Σ_i exp(left_i + right_{n-i})."""
    return np.asarray([np.logaddexp.reduce(left[: n + 1] + right[n::-1]) for n in range(len(left))])


def answer(document: object) -> dict[str, Json]:
    """Solve the network that the document describes. Raise `BadInput` naming the field."""
    given = read_document(INPUT, document)
    stations = [Station(**row) for row in given["stations"]]
    if not stations:
        raise BadInput("stations", "must have at least one entry")
    for at, station in enumerate(stations):
        if station.name in [earlier.name for earlier in stations[:at]]:
            raise BadInput(f"stations[{at}].name", f"{station.name} appears twice; names must differ")
    if not given["think_seconds"] and not any(station.demand_seconds for station in stations):
        raise BadInput("stations", "must have a station with service and visits, or set think_seconds")
    # Products of tiny times underflow.
    sizes = {"think_seconds": given["think_seconds"]}
    for at, row in enumerate(given["stations"]):
        sizes |= {f"stations[{at}].{name}": row[name] for name in ("service_seconds", "visits")}
    for field, value in sizes.items():
        if 0 < value < MIN_MAGNITUDE:
            raise BadInput(field, f"must be 0 or at least {MIN_MAGNITUDE:g}, not {value:g}")
    return asdict(solve_closed(stations, given["customers"], given["think_seconds"]))
