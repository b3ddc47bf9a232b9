"""The declaration of a table or figure: its scenario, the settings that vary, and the values of the paper.

A run is one law with one case of the settings, named `law@case` (or `law` if there is only one case). Weir's own values
are never declared: they come from runs (`compare`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controllers.simulation.catalog import SCENARIOS
from controllers.simulation.scenario import Scenario, get_metric

# A value of Weir matches a number of a paper if it differs by at most this share of the number.
TOLERANCE = 0.2
LOSS = "relative_loss"
# A number of the paper, or the lower and upper end of a range; None is an open end.
Reported = float | tuple[float | None, float | None]


@dataclass(frozen=True)
class Paper:
    """A paper: its name in URLs, and its reference."""

    name: str
    reference: str


HOUTMAN = Paper("houtman", "Houtman (2009): Scalable queues and workers at Hyves")
XU = Paper("xu", "Xu et al. (2005): Control considerations for scalable event processing")
TANG = Paper("tang", "Tang et al. (2009): Black-box performance control for high-volume non-interactive systems")
ROEGER = Paper("roeger", "Röger et al. (2023): A grand perspective on load shedding in distributed CEP")
STUTZ = Paper("stutz", "Stutz (2018): A framework for elastic CEP systems")
PAPERS = (HOUTMAN, XU, TANG, ROEGER, STUTZ)


@dataclass(frozen=True)
class FigureRun:
    """One law with one case of the settings. The settings are those that differ from the scenario's."""

    law: str
    case: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PaperFigure:
    """A table or figure of a paper.

    name: in addresses. number: as the paper prints it. finding: what the paper says about it. metrics: the compared
    ones, the plotted one first. cases: the settings of each case by its name. axis: the setting on the x-axis; "" if
    the cases have no order. series: shown over time, instead of the first metric by case. reported: by metric and run.
    loss_to: the law whose value of the first metric is the reference of the others' relative loss. erratum: where the
    paper is wrong, and what holds. seeds: 1 for a scenario without randomness.
    """

    name: str
    paper: Paper
    number: str
    title: str
    finding: str
    scenario: str
    laws: Sequence[str]
    metrics: Sequence[str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    cases: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    axis: str = ""
    series: Sequence[str] = ()
    reported: Mapping[str, Mapping[str, Reported]] = field(default_factory=dict)
    loss_to: str = ""
    erratum: str = ""
    seeds: int = 5

    @property
    def declared_scenario(self) -> Scenario:
        return SCENARIOS[self.scenario]

    @property
    def runs(self) -> dict[str, FigureRun]:
        return {
            f"{law}@{case}" if case else law: FigureRun(law, case, {**self.settings, **values})
            for case, values in self.cases.items()
            for law in self.laws
        }

    def get_reported_range(self, metric: str, run: str) -> tuple[float | None, float | None]:
        """Return the ends of what the paper reports: equal for a number, both None if it reports nothing."""
        value = self.reported.get(metric, {}).get(run)
        return value if isinstance(value, tuple) else (value, value)


@dataclass(frozen=True)
class ComparedValue:
    """A value of a run: the paper's (low = high for a single number), ours, and its confidence band.

    agrees: None without a value of the paper, or without ours.
    """

    run: str
    law: str
    case: str
    metric: str
    unit: str
    low: float | None
    high: float | None
    ours: float | None
    band: tuple[float, float] | None
    agrees: bool | None

    @property
    def is_reported(self) -> bool:
        return self.low is not None or self.high is not None


Results = Mapping[str, Mapping[str, float | None]]
Bands = Mapping[str, Mapping[str, Sequence[float]]]


def compare(figure: PaperFigure, results: Results, bands: Bands) -> list[ComparedValue]:
    """Return a row for each metric and run, with the values of the paper next to those of the runs so far."""
    rows = []
    for metric in figure.metrics:
        for name, run in figure.runs.items():
            ours, band = results.get(name, {}).get(metric), bands.get(name, {}).get(metric)
            low, high = figure.get_reported_range(metric, name)
            edges = None if band is None else (band[0], band[1])
            unit, agrees = get_metric(metric).unit, _is_in_range(ours, low, high)
            rows.append(ComparedValue(name, run.law, run.case, metric, unit, low, high, ours, edges, agrees))
    return [*rows, *_compute_losses(figure, results)]


def _compute_losses(figure: PaperFigure, results: Results) -> Iterator[ComparedValue]:
    first, unit = figure.metrics[0], f"share of the {figure.metrics[0]} of {figure.loss_to}"
    for name, run in figure.runs.items():
        reference = results.get(name.replace(run.law, figure.loss_to, 1), {}).get(first)
        value = results.get(name, {}).get(first)
        if figure.loss_to and run.law != figure.loss_to:
            ours = 1 - value / reference if reference and value is not None else None
            low, high = figure.get_reported_range(LOSS, name)
            agrees = _is_in_range(ours, low, high)
            yield ComparedValue(name, run.law, run.case, LOSS, unit, low, high, ours, None, agrees)


def _is_in_range(ours: float | None, low: float | None, high: float | None) -> bool | None:
    if ours is None or (low is None and high is None):
        return None
    slack = TOLERANCE * abs(low) if low is not None and low == high else 0.0
    return (low is None or ours >= low - slack) and (high is None or ours <= high + slack)


def vary(setting: str, *values: float | str) -> dict[str, dict[str, Any]]:
    """Return the cases of a setting, named by its values."""
    return {f"{value:g}" if isinstance(value, (int, float)) else value: {setting: value} for value in values}


def report(law: str, cases: Sequence[str], values: Sequence[Reported]) -> dict[str, Reported]:
    """Return the values of a law by run."""
    return {f"{law}@{case}": value for case, value in zip(cases, values, strict=True)}
