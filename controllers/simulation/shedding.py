"""The lab's scenario `shedding`: Röger's running example under 110 to 300 % load.

Four types arrive at O2, whose patterns feed O3 and O4, where Q11 and Q12 join (see `shed_stream`). At `load_percent`
160 the types arrive at 40, 30, 20, and 25 events/s; everything scales with it. `balance` says whether Q11 and Q12 are
plentiful (balanced) or one is scarce, or takes all rates from 56 hours of Google's Borg cluster, compressed to
`seconds`, with `load_percent` as the mean load. Every `interval_seconds` the law gets measurements, smoothed over
`SMOOTHING_SECONDS`: rates, processing times, the variability of service (ERRATA E25), and each pattern's output over
its selectivity (E24). Its table decides on the events of the next interval, each by its own random number, so that all
laws drop from the same order.

recall                 matches at the sinks, over those without any shedding
latency_mean_seconds   time in O2, including shed events, as the bound counts it
bound_violations       share of 10 s windows whose mean latency is above the bound
utilisation            work done per second at O2
realised_share         matches at the sinks, over the program's promise (null for baselines without one)
matches                matches at the sinks
deviation_seconds      mean distance of the processing time from the required one, counted if it is exceeded or if
                       events are shed (Röger, Figure 5)
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from common.parameter import Parameter
from controllers.baselines.shedders import SHEDDERS, MeasuredStream, Table
from controllers.shedding.inputs import ALL_SINKS, PatternRow, SheddingObservation, SheddingParameters
from controllers.shedding.latency_bound import compute_operator_budget
from controllers.shedding.law import Shedding
from controllers.shedding.trigger import SheddingState
from controllers.simulation.scenario import Floats, Scenario, ScenarioOutcome, SimulationCost, SimulationSize, resample
from controllers.simulation.shed_stream import (
    BORG_SOURCES,
    RATES,
    SECONDS,
    TAKES,
    SequenceMatcher,
    SetMatcher,
    Stream,
    compute_departures,
    generate,
    join_events,
)

SMOOTHING_SECONDS, VIOLATION_SECONDS = 60.0, 10.0
# Excluded from every mean: until the first table everything is admitted, and that queue has to drain.
WARM_UP_SECONDS = 300.0
SETTINGS = (
    Parameter("load_percent", "% of one server", "Load offered to operator O2.", 200.0, 1, 1_000),
    Parameter(
        "balance",
        "choice",
        "Rates of the types that join later: balanced, or one type is scarce; or all rates from the Borg trace.",
        "q11-scarce",
        kind="choice",
        choices=("balanced", "q11-scarce", "q12-scarce", *BORG_SOURCES),
    ),
    Parameter("window_seconds", "s", "Maximum time between events of a match.", 10.0, 0.01, 3_600),
    Parameter("latency_bound_seconds", "s", "Maximum mean latency of operator O2.", 0.12, 0.013, 60),
    Parameter("interval_seconds", "s", "Time between decisions.", 5.0, 1, 600),
    Parameter("seconds", "s", "Duration of the run.", 14_400.0, 600, 86_400),
)
# Events of each type that a match needs.
NEEDS = {"P21": {"0": 2, "1": 1}, "P22": {"1": 1, "2": 1, "3": 1}}
PATTERNS = (
    PatternRow(operator="O2", name="P21", expression="SEQ(0;0;1)", emits="Q21", seconds=SECONDS["P21"]),
    PatternRow(operator="O2", name="P22", expression="AND(1,2,3)", emits="Q22", seconds=SECONDS["P22"]),
    PatternRow(operator="O3", name="P3", expression="AND(Q11,Q21)", emits="S1", seconds=0.0),
    PatternRow(operator="O4", name="P4", expression="AND(Q12,Q22)", emits="S2", seconds=0.0),
)


@dataclass
class ExponentialMeans:
    """Exponential means of several numbers over `SMOOTHING_SECONDS`; the first values are plain means."""

    interval_seconds: float
    values: dict[str, float] = field(default_factory=dict)
    weight: float = 0.0

    def add(self, seen: Mapping[str, float]) -> None:
        keep = np.exp(-self.interval_seconds / SMOOTHING_SECONDS)
        for name, value in seen.items():
            self.values[name] = keep * self.values.get(name, 0.0) + value
        self.weight = keep * self.weight + 1.0

    def compute_mean(self, name: str) -> float:
        return self.values.get(name, 0.0) / self.weight if self.weight else 0.0

    def compute_ratio(self, name: str, of: str, otherwise: float) -> float:
        """Return one mean over another; if the other has no values yet, a given value."""
        below = self.values.get(of, 0.0)
        return self.values.get(name, 0.0) / below if below > 0 else otherwise


class ControlledShedding:
    """A law with its measurements: it gives a table at each interval and then receives the result."""

    def __init__(self, law: str, settings: Mapping[str, Any]) -> None:
        self.name, self.law, self.settings = law, Shedding(), settings
        self.parameters = SheddingParameters(
            perspective="local" if law == "local" else "global",
            latency_bound_seconds=settings["latency_bound_seconds"],
            spare="admit",
        )
        self.state = SheddingState()
        self.seen = ExponentialMeans(settings["interval_seconds"])
        self.expected = math.nan  # nothing is promised before the first table
        self.promised: list[float] = []
        self.required_seconds: list[float] = []  # mean processing time that keeps the bound, by interval
        self.sheds: list[bool] = []  # whether any event is shed, by interval
        self.table: Table = SHEDDERS["none"](self._measure())

    def decide(self) -> Table:
        """Return the shares to drop in the next interval."""
        rate = sum(self.compute_rate(str(kind)) for kind in range(len(RATES)))
        bound = float(self.settings["latency_bound_seconds"])
        budget = compute_operator_budget(bound, rate, self.compute_service_cv2()) if rate else math.nan
        self.required_seconds.append(budget / rate if rate else math.nan)
        if not self.seen.weight:
            return self.table
        if self.name in SHEDDERS:
            self.table = SHEDDERS[self.name](self._measure())
            return self.table
        rows = [
            replace(
                row,
                seconds=self.get_processing_seconds(row.name) if row.name in SECONDS else 0.0,
                correction=min(1.0, self.seen.compute_ratio(f"out {row.name}", f"could {row.name}", 1.0)),
            )
            for row in PATTERNS
        ]
        observation = SheddingObservation(
            bottleneck="O2",
            arrivals={
                "O2": {str(kind): self.compute_rate(str(kind)) for kind in range(len(RATES))},
                "O3": {"Q11": self.compute_rate("Q11")},
                "O4": {"Q12": self.compute_rate("Q12")},
            },
            patterns=tuple(rows),
            sinks={"S1": 1.0, "S2": 1.0},
            service_cv2=self.compute_service_cv2(),
        )
        self.state, decision = self.law.decide(self.parameters, self.state, observation)
        if decision.action is not None:
            self.table = {name: dict(shares) for name, shares in decision.action["shed"].items()}
            self.expected = float(decision.action["expected"][ALL_SINKS])
        self.promised.append(self.expected)
        return self.table

    def compute_rate(self, kind: str) -> float:
        """Return the smoothed events/s."""
        return self.seen.compute_mean(f"in {kind}") / float(self.settings["interval_seconds"])

    def get_processing_seconds(self, pattern: str) -> float:
        return self.seen.compute_ratio(f"work {pattern}", f"processed {pattern}", SECONDS[pattern])

    def compute_service_cv2(self) -> float:
        """Return the variability of all events' service, including those without service."""
        mean = self.seen.compute_ratio("service", "events", 0.0)
        square = self.seen.compute_ratio("service²", "events", 0.0)
        return max(0.0, square / mean**2 - 1) if mean > 0 else 1.0

    def _measure(self) -> MeasuredStream:
        rates = {str(kind): self.compute_rate(str(kind)) for kind in range(len(RATES))}
        utility: dict[str, dict[str, float]] = {}
        for name, needs in NEEDS.items():
            # The share of a type's events that could end in matches, given the scarcest type.
            matches = min(rates[kind] / count for kind, count in needs.items())
            utility[name] = {
                kind: min(1.0, matches * count / rates[kind]) if rates[kind] > 0 else 0.0
                for kind, count in needs.items()
            }
        bound = self.settings["latency_bound_seconds"]
        return MeasuredStream(
            rates,
            {name: list(needs) for name, needs in NEEDS.items()},
            {name: self.get_processing_seconds(name) for name in SECONDS},
            compute_operator_budget(bound, sum(rates.values()), self.compute_service_cv2()),
            utility,
        )


def pass_through(
    stream: Stream, settings: Mapping[str, Any], who: ControlledShedding | None
) -> tuple[Floats, dict[str, Floats]]:
    """Run O2 with a law's shedder, or without shedding and limits.

    Return the service of each event, and the times of the matches of each pattern.
    """
    window, every = float(settings["window_seconds"]), float(settings["interval_seconds"])
    matchers: dict[str, SequenceMatcher | SetMatcher] = {
        "P21": SequenceMatcher(window),
        "P22": SetMatcher((1, 2, 3), window),
    }
    service, kept_times = np.zeros(len(stream.times)), {name: list[Floats]() for name in TAKES}
    joins = JoinMeasurement(window)
    edges = np.searchsorted(stream.times, np.arange(0, stream.seconds + every, every))
    for number, (start, end) in enumerate(pairwise(edges)):
        table, part = who.decide() if who else None, slice(int(start), int(end))
        if who:
            who.sheds.append(any(share > 0 for shares in (table or {}).values() for share in shares.values()))
        types, times = stream.types[part], stream.times[part]
        seen = {f"in {kind}": float(count) for kind, count in enumerate(_count_types(types))}
        for name, takes in TAKES.items():
            dropped = np.zeros(len(RATES))
            for kind, share in (table or {}).get(name, {}).items():
                dropped[int(kind)] = share
            admitted = np.isin(types, takes) & (stream.chance[name][part] >= dropped[types])
            matches = [
                now
                for kind, now in zip(types[admitted].tolist(), times[admitted].tolist(), strict=True)
                if matchers[name].take(kind, now)
            ]
            kept_times[name].append(np.asarray(matches))
            spent = np.where(admitted, stream.work[name][part], 0.0)
            service[part] += spent
            # The matches if no admitted event were lost in windows.
            counts = _count_types(types[admitted])
            could = min(counts[0] / 2, counts[1]) if name == "P21" else counts[1:4].min()
            seen |= {f"work {name}": float(spent.sum()), f"processed {name}": float(admitted.sum())}
            seen |= {f"out {name}": float(len(matches)), f"could {name}": float(could)}
        if who:
            seen |= joins.measure_rates(stream, number * every, every, {n: f[-1] for n, f in kept_times.items()})
            seen |= {"events": float(end - start), "service": float(service[part].sum())}
            who.seen.add(seen | {"service²": float((service[part] ** 2).sum())})
    return service, {name: np.concatenate(parts) for name, parts in kept_times.items()}


class JoinMeasurement:
    """O3 and O4, measured while the law runs."""

    def __init__(self, window_seconds: float) -> None:
        self.matchers = {name: SetMatcher((0, 1), window_seconds) for name in ("P3", "P4")}

    def measure_rates(
        self, stream: Stream, start: float, every: float, matches: Mapping[str, Floats]
    ) -> dict[str, float]:
        """Return the rates of Q11 and Q12, and the joins' matches and possible matches."""
        seen: dict[str, float] = {}
        for name, outside, inside in (("P3", "Q11", "P21"), ("P4", "Q12", "P22")):
            times = stream.outside[outside]
            came = times[np.searchsorted(times, start) : np.searchsorted(times, start + every)]
            both = np.concatenate([came, matches[inside]])
            order = np.argsort(both, kind="stable")
            taken = [self.matchers[name].take(int(at >= len(came)), float(both[at])) for at in order.tolist()]
            seen |= {f"in {outside}": float(len(came)), f"out {name}": float(sum(taken))}
            seen[f"could {name}"] = float(min(len(came), len(matches[inside])))
        return seen


def _count_types(types: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.bincount(types, minlength=len(RATES))


def count_sink_matches(stream: Stream, matches: Mapping[str, Floats], window_seconds: float, after: float) -> int:
    s1 = join_events(stream.outside["Q11"], matches["P21"], window_seconds)
    s2 = join_events(stream.outside["Q12"], matches["P22"], window_seconds)
    return int((s1 >= after).sum() + (s2 >= after).sum())


def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run one law on the stream."""
    stream, who = build_stream(settings, seed, trace), ControlledShedding(law, settings)
    service, matches = pass_through(stream, settings, who)
    return summarize(settings, seed, trace, compute_departures(stream.times, service), service, matches, who)


def build_stream(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> Stream:
    """Return the stream, the same for all laws."""
    return _build_unshed_stream(tuple(settings.items()), seed, None if trace is None else tuple(trace))[0]


def summarize(
    settings: Mapping[str, Any],
    seed: int,
    trace: Floats | None,
    left: Floats,
    service: Floats,
    matches: Mapping[str, Floats],
    who: ControlledShedding | None = None,
) -> ScenarioOutcome:
    """Return the metrics of a run, compared with the same stream without shedding.

    left, service: per event, when it leaves O2, and the work on it. matches: by pattern, the times of matches. who: the
    law; None: what it promised and required is not known.
    """
    stream, possible = _build_unshed_stream(tuple(settings.items()), seed, None if trace is None else tuple(trace))
    # An overloaded operator never gets to the rest.
    late = stream.times[left > stream.seconds]
    end = late[0] if len(late) else np.inf
    matches = {name: completions[completions < end] for name, completions in matches.items()}
    got = count_sink_matches(stream, matches, float(settings["window_seconds"]), WARM_UP_SECONDS)
    latency, counted = left - stream.times, stream.times >= WARM_UP_SECONDS
    number = ((stream.times - WARM_UP_SECONDS) // VIOLATION_SECONDS).astype(int)
    sums, counts = np.bincount(number[number >= 0], weights=latency[number >= 0]), np.bincount(number[number >= 0])
    by_window = np.asarray(sums[counts > 0] / counts[counts > 0])
    late_windows = by_window > settings["latency_bound_seconds"]
    processing = np.bincount(number[number >= 0], weights=service[number >= 0])[counts > 0] / counts[counts > 0]
    seconds = stream.seconds - WARM_UP_SECONDS
    promises = who.promised[int(WARM_UP_SECONDS / settings["interval_seconds"]) :] if who else []
    known = np.asarray([rate for rate in promises if not math.isnan(rate)])
    promised = float(known.mean()) * seconds if known.size else 0.0
    metrics = {
        "recall": round(got / possible, 4) if possible else None,
        "latency_mean_seconds": round(float(latency[counted].mean()), 5) if counted.any() else None,
        "bound_violations": round(float(late_windows.mean()), 4) if late_windows.size else None,
        "utilisation": round(float(service[counted].sum()) / seconds, 4),
        "realised_share": round(got / promised, 4) if promised > 0 else None,
        "matches": got,
    }
    series = {"latency_seconds": by_window, "processing_seconds": processing}
    if who:
        starts = WARM_UP_SECONDS + VIOLATION_SECONDS * np.flatnonzero(counts > 0)
        places = np.minimum(starts // settings["interval_seconds"], len(who.required_seconds) - 1).astype(int)
        required = np.asarray(who.required_seconds)[places]
        is_counted = (processing > required) | np.asarray(who.sheds)[places]
        deviations = np.abs(processing - required) * is_counted
        metrics["deviation_seconds"] = round(float(deviations.mean()), 6) if deviations.size else None
        series["required_seconds"] = required
    return ScenarioOutcome(metrics, series, VIOLATION_SECONDS)


@lru_cache(maxsize=1)
def _build_unshed_stream(
    settings: tuple[tuple[str, Any], ...], seed: int, trace: tuple[float, ...] | None
) -> tuple[Stream, int]:
    """Return the stream, the same for all laws, and the matches of its sinks without shedding."""
    given = dict(settings)
    profile = None if trace is None else resample(np.asarray(trace), int(given["seconds"]))
    stream = generate(given, seed, profile)
    _, matches = pass_through(stream, given, None)
    return stream, count_sink_matches(stream, matches, float(given["window_seconds"]), WARM_UP_SECONDS)


def estimate_cost(settings: Mapping[str, Any]) -> SimulationCost:
    """By the number of events; fitted to runs of 200 and 400 % of a server."""
    size = settings["seconds"] * settings["load_percent"]
    return SimulationCost(4e-6 * size, 80.0 * size)


SCENARIO = Scenario(
    "shedding",
    "Matches at the sinks while an operator is overloaded (example of Röger et al.).",
    ("global", "local", "random", "none", "utility"),
    SETTINGS,
    ("recall", "latency_mean_seconds", "bound_violations", "utilisation"),
    run,
    steers={name: ("shedding", {"perspective": name}) for name in ("global", "local")},
    size=SimulationSize(("seconds", "load_percent"), "Reduce seconds or load_percent.", estimate_cost),
)
