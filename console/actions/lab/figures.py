"""Tables and figures of the papers: their runs as experiments, and the values of a paper next to those of the runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np
from django.http import Http404

from common import checks
from common.errors import BadInput
from common.stored_document import Seconds, describe
from console.accounts.access import Actor
from console.actions.lab.experiment_documents import DescribedExperiment, describe_experiment, list_readable_experiments
from console.actions.lab.experiments import WantedExperiment
from console.actions.lab.traces import Trace
from console.display.downsampling import downsample
from controllers.simulation.figures.catalog import FIGURES
from controllers.simulation.figures.figure import ComparedValue, PaperFigure, compare
from workers.batch.jobs.experiment import check_figure_cost
from workers.lab.models import Experiment
from workers.lab.series import read_series_with_bands

MAX_SEEDS = 30
PLOT_POINTS = 400


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The newest experiment of a figure, and how many of the paper's values its runs agree with."""

    figure: PaperFigure
    experiment: DescribedExperiment | None
    agreeing: int
    reported: int


class FigureCurve(TypedDict):
    """A series of a run, as drawn; low and high are empty without several seeds."""

    run: str
    series: str
    seconds: list[Seconds]
    values: list[float | None]
    low: list[float | None]
    high: list[float | None]


@dataclass(frozen=True, kw_only=True)
class DescribedFigure:
    """A figure with the values of an experiment. experiment: None if it was never run."""

    name: str
    paper: str
    number: str
    title: str
    finding: str
    erratum: Annotated[str, describe("Where the paper is wrong, and what holds; empty: nowhere known.")]
    scenario: str
    axis: Annotated[str, describe("The setting on the x-axis; empty: the cases have no order.")]
    seeds: Annotated[int, describe("Default number of seeds.")]
    command: str
    experiment: DescribedExperiment | None
    values: list[ComparedValue]
    curves: list[FigureCurve]


def get_figure(name: str) -> PaperFigure:
    """Return the figure of that name. Raises `Http404`."""
    if name not in FIGURES:
        raise Http404(f"Figure {name[:60]} is unknown.")
    return FIGURES[name]


def want_figure(figure: PaperFigure, seeds: float, seed: float, trace: Trace | None = None) -> WantedExperiment:
    """Validate a new run of a figure. Raises `BadInput` that names seeds or seed."""
    if not checks.is_whole(seeds, 1, MAX_SEEDS):
        raise BadInput("seeds", f"must be a whole number from 1 to {MAX_SEEDS}, not {str(seeds)[:40]}.")
    if not checks.is_whole(seed, 0, 2**63 - 1 - MAX_SEEDS):
        raise BadInput("seed", f"must be a whole number of at least 0, not {str(seed)[:40]}.")
    check_figure_cost(figure, int(seeds))
    scenario = figure.declared_scenario
    return WantedExperiment(
        scenario,
        list(figure.runs),
        scenario.read_settings(figure.settings),
        int(seed),
        f"{figure.paper.name.capitalize()}, {figure.number}",
        trace,
        figure=figure.name,
        runs={
            name: {"law": run.law, "settings": scenario.read_settings(run.settings)}
            for name, run in figure.runs.items()
        },
        seeds=int(seeds),
    )


def list_agreements(actor: Actor) -> list[Agreement]:
    """Return all figures, each with its newest experiment."""
    newest: dict[str, Experiment] = {}
    for experiment in list_readable_experiments(actor).exclude(figure="").order_by("pk"):
        newest[experiment.figure] = experiment
    rows = []
    for figure in FIGURES.values():
        found = newest.get(figure.name)
        values = compare_experiment(figure, found)
        rows.append(
            Agreement(
                figure=figure,
                experiment=describe_experiment(found) if found else None,
                agreeing=sum(value.agrees is True for value in values),
                reported=sum(value.is_reported for value in values),
            )
        )
    return rows


def find_experiment(actor: Actor, figure: PaperFigure, number: int | None = None) -> Experiment | None:
    """Return an experiment of the figure, by default the newest. Raises `Http404` for an unknown number."""
    chosen = list_readable_experiments(actor).filter(figure=figure.name)
    if number is None:
        return chosen.order_by("-pk").first()
    found = chosen.filter(pk=number).first()
    if found is None:
        raise Http404(f"{figure.number} has no experiment {number}.")
    return found


def compare_experiment(figure: PaperFigure, experiment: Experiment | None) -> list[ComparedValue]:
    results = list(experiment.results.all()) if experiment else []
    return compare(
        figure, {result.law: result.metrics for result in results}, {result.law: result.bands for result in results}
    )


def describe_figure(data: Path, figure: PaperFigure, experiment: Experiment | None) -> DescribedFigure:
    return DescribedFigure(
        name=figure.name,
        paper=figure.paper.reference,
        number=figure.number,
        title=figure.title,
        finding=figure.finding,
        erratum=figure.erratum,
        scenario=figure.scenario,
        axis=figure.axis,
        seeds=figure.seeds,
        command=f"manage.py lab figure {figure.name}",
        experiment=describe_experiment(experiment) if experiment else None,
        values=compare_experiment(figure, experiment),
        curves=list_curves(data, figure, experiment) if experiment else [],
    )


def list_curves(data: Path, figure: PaperFigure, experiment: Experiment) -> list[FigureCurve]:
    """Return the figure's series of each run with few enough points for a chart."""
    curves: list[FigureCurve] = []
    for run in figure.runs if figure.series else ():
        step, columns = read_series_with_bands(data, experiment.pk, run)
        for name in figure.series:
            if name in columns:
                curves.append(_build_curve(run, name, step, np.atleast_2d(columns[name])))
    return curves


def _build_curve(run: str, name: str, step: float, rows: np.ndarray) -> FigureCurve:
    seconds = [index * step for index in range(rows.shape[1])]
    columns: Mapping[str, Sequence[float | None]] = {
        end: [None if value != value else value for value in row]
        for end, row in zip(("values", "low", "high"), rows.tolist(), strict=False)
    }
    times, kept = downsample(seconds, columns, PLOT_POINTS)
    return {
        "run": run,
        "series": name,
        "seconds": times,
        "values": kept["values"],
        "low": kept.get("low", []),
        "high": kept.get("high", []),
    }
