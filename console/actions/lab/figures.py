"""Tables and figures of the papers: their runs as experiments, and the paper's values next to Weir's values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from django.http import Http404

from common import checks
from common.errors import BadInput
from common.stored_document import describe
from console.accounts.access import Actor
from console.actions.lab.experiment_documents import DescribedExperiment, describe_experiment, list_readable_experiments
from console.actions.lab.experiments import WantedExperiment
from console.actions.lab.traces import Trace
from controllers.simulation.figures.catalog import FIGURES
from controllers.simulation.figures.figure import ComparedValue, PaperFigure, compare
from workers.batch.jobs.experiment import check_figure_cost
from workers.lab.models import Experiment

MAX_SEEDS = 30


@dataclass(frozen=True, kw_only=True)
class DescribedFigure:
    """A table or figure with its values. experiment: the source of the values; None if it was never run."""

    name: str
    paper: str
    number: str
    title: str
    finding: str
    erratum: Annotated[str, describe("Known errors in the paper, with corrections; empty: none known.")]
    scenario: str
    axis: Annotated[str, describe("The setting on the x-axis; empty: the cases have no order.")]
    series: Annotated[Sequence[str], describe("Names of the experiment's time series to plot.")]
    seeds: Annotated[int, describe("Default number of seeds.")]
    experiment: DescribedExperiment | None
    values: list[ComparedValue]
    reported: Annotated[int, describe("Number of values that the paper reports.")]
    agreeing: Annotated[int, describe("Number of reported values that the experiment matches.")]


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


def list_figures(actor: Actor) -> list[DescribedFigure]:
    """Return all figures, each with the values of its newest experiment."""
    experiments = list_readable_experiments(actor).exclude(figure="").order_by("pk")
    newest = {experiment.figure: experiment for experiment in experiments}
    return [describe_figure(figure, newest.get(figure.name)) for figure in FIGURES.values()]


def find_experiment(actor: Actor, figure: PaperFigure, number: int | None = None) -> Experiment | None:
    """Return an experiment of the figure, by default the newest. Raises `Http404` for an unknown number."""
    chosen = list_readable_experiments(actor).filter(figure=figure.name)
    if number is None:
        return chosen.order_by("-pk").first()
    found = chosen.filter(pk=number).first()
    if found is None:
        raise Http404(f"{figure.number} has no experiment {number}.")
    return found


def describe_figure(figure: PaperFigure, experiment: Experiment | None) -> DescribedFigure:
    results = list(experiment.results.all()) if experiment else []
    values = compare(
        figure, {result.law: result.metrics for result in results}, {result.law: result.bands for result in results}
    )
    return DescribedFigure(
        name=figure.name,
        paper=figure.paper.reference,
        number=figure.number,
        title=figure.title,
        finding=figure.finding,
        erratum=figure.erratum,
        scenario=figure.scenario,
        axis=figure.axis,
        series=figure.series,
        seeds=figure.seeds,
        experiment=describe_experiment(experiment) if experiment else None,
        values=values,
        reported=sum(value.is_reported for value in values),
        agreeing=sum(value.agrees is True for value in values),
    )
