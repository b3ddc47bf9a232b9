"""Experiments of the lab as shown: results side by side, series as drawn, and the command."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import numpy as np
from django.conf import settings
from django.db.models import QuerySet
from django.http import Http404

from common.files import resolve_inside_folder
from common.stored_document import describe
from console.accounts.access import Actor, require_data_access
from console.actions.task_documents import IsoTime, RunProgress
from console.display.downsampling import downsample
from console.display.formats import format_for_input
from controllers.simulation.catalog import SCENARIOS
from controllers.simulation.scenario import Floats, Metric, find_best_value, get_metric, list_metric_names
from workers.lab.models import Experiment, ExperimentResult
from workers.lab.series import read_series
from workers.models import Run
from workers.twin.catalog import NAME as SHIPPED

PLOT_POINTS = 600


class ExperimentTrace(TypedDict):
    name: str
    column: str
    rows: int
    path: NotRequired[Annotated[str, describe("Path of the file in the data folder; empty: unknown.")]]


@dataclass(frozen=True, kw_only=True)
class DescribedExperiment:
    """An experiment and its results so far.

    run, state, error, progress: of the run that simulates it. owner: None for a command.
    """

    id: int
    scenario: str
    title: str
    laws: list[str]
    parameters: Annotated[Mapping[str, Any], describe("The scenario's settings.")]
    changed: Annotated[Mapping[str, Any], describe("Settings that differ from the scenario's.")]
    seed: int
    figure: Annotated[str, describe("Table or figure of a paper; its laws are runs, named LAW@CASE. Empty: none.")]
    seeds: Annotated[int, describe("Number of seeds. Results are means over the seeds.")]
    trace: ExperimentTrace | None
    owner: str | None
    created_at: IsoTime
    run: int | None
    state: Annotated[str, describe(values=Run.State.values)]
    error: str
    results: Annotated[dict[str, dict[str, float | None]], describe("Keyed by law, then by metric.")]
    seconds: Annotated[dict[str, float], describe("Duration of each law's simulation, s.")]
    command: Annotated[str, describe("The equivalent command line.")]
    progress: RunProgress


@dataclass(frozen=True, kw_only=True)
class NamedMetric(Metric):
    name: str


@dataclass(frozen=True)
class ResultCell:
    """best: of this metric, over all rows."""

    value: float | None
    best: bool


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """Results of one law in an experiment, a cell for each metric. seconds: duration of the simulation."""

    experiment: Experiment
    law: str
    seconds: float
    cells: list[ResultCell]


@dataclass(frozen=True)
class ResultsTable:
    metrics: list[NamedMetric]
    rows: list[ResultRow]


def list_readable_experiments(actor: Actor) -> QuerySet[Experiment]:
    query = Experiment.objects.select_related("run", "owner").prefetch_related("results")
    if actor.queues is None:
        return query
    scopes = Experiment.objects.filter(trace__isnull=False).values_list("pk", "queues")
    return query.exclude(pk__in=[pk for pk, queues in scopes if not actor.can_access_queues(queues)])


def experiment_for(actor: Actor, action: str, number: int) -> Experiment:
    """Return the experiment of that number.

    Raises `Http404`; `PermissionDenied` if its trace has values of a queue that the actor may not access.
    """
    query = Experiment.objects.select_related("run", "owner").prefetch_related("results").filter(pk=number)
    experiment = query.first()
    if experiment is None:
        raise Http404(f"Experiment {number} is unknown.")
    require_data_access(actor, action, experiment.queues)
    return experiment


def describe_experiment(experiment: Experiment) -> DescribedExperiment:
    run = experiment.run
    return DescribedExperiment(
        id=experiment.pk,
        scenario=experiment.scenario,
        title=experiment.title,
        laws=experiment.laws,
        parameters=experiment.settings,
        changed=list_changed_settings(experiment),
        seed=experiment.seed,
        figure=experiment.figure,
        seeds=experiment.seeds,
        trace=experiment.trace,
        owner=experiment.owner.get_username() if experiment.owner else None,
        created_at=experiment.created_at.isoformat(),
        run=run.pk if run else None,
        state=run.state if run else Run.State.DONE,
        error=run.error if run else "",
        results={result.law: result.metrics for result in _sort_results(experiment)},
        seconds={result.law: result.seconds for result in _sort_results(experiment)},
        command=format_experiment_command(experiment),
        progress=run.progress if run else {},
    )


def _sort_results(experiment: Experiment) -> list[ExperimentResult]:
    """Return the results in the order of the experiment's laws."""
    return sorted(experiment.results.all(), key=lambda result: experiment.laws.index(result.law))


def list_changed_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that differ from the scenario's own."""
    scenario = SCENARIOS.get(experiment.scenario)
    defaults = {setting.name: setting.default for setting in scenario.settings} if scenario else {}
    return {name: value for name, value in experiment.settings.items() if defaults.get(name) != value}


def format_experiment_command(experiment: Experiment) -> str:
    scenario = SCENARIOS.get(experiment.scenario)
    if experiment.figure:
        words = ["manage.py", "lab", "figure", experiment.figure, "--seeds", str(experiment.seeds)]
    else:
        words = ["manage.py", "lab", "run", experiment.scenario]
        laws = [law for law in experiment.laws if law != SHIPPED]
        if scenario is None or set(laws) != set(scenario.laws):
            words += [word for law in laws for word in ("--law", law)]
        words += ["--shipped"] if SHIPPED in experiment.laws else []
        for name, value in list_changed_settings(experiment).items():
            words += ["--set", f"{name}={format_for_input(value)}"]
    words += ["--seed", str(experiment.seed)]
    if experiment.trace:
        file = experiment.trace["name"]  # all that older experiments have
        if path := experiment.trace.get("path"):
            file = str(resolve_inside_folder(Path(settings.WEIR_DATA), path, "trace"))
        words += ["--trace", file, "--column", experiment.trace["column"]]
    return shlex.join(words)


def build_results_table(experiments: Iterable[Experiment]) -> ResultsTable:
    rows = [(experiment, result) for experiment in experiments for result in _sort_results(experiment)]
    names = list_metric_names(result.metrics for _, result in rows)
    winners = {name: find_best_value(name, [result.metrics.get(name) for _, result in rows]) for name in names}
    return ResultsTable(
        [NamedMetric(name=name, **vars(get_metric(name))) for name in names],
        [
            ResultRow(
                experiment=experiment,
                law=result.law,
                seconds=result.seconds,
                cells=[
                    ResultCell(value := result.metrics.get(name), value is not None and value == winners[name])
                    for name in names
                ],
            )
            for experiment, result in rows
        ],
    )


def list_series_names(data: Path, experiments: Iterable[Experiment]) -> list[str]:
    names = (
        read_series(data, experiment.pk, result.law)[1]
        for experiment in experiments
        for result in _sort_results(experiment)
    )
    return list(dict.fromkeys(name for columns in names for name in columns))


def build_series_document(data: Path, experiment: Experiment) -> dict[str, Any]:
    """Return {law: {series: {"seconds", "values", "low", "high"}}}, with few enough points for a chart.

    low, high: the confidence band; empty for a single seed.
    """
    document: dict[str, Any] = {}
    for result in _sort_results(experiment):
        step, columns = read_series(data, experiment.pk, result.law)
        document[result.law] = {name: _build_series(step, values) for name, values in columns.items()}
    return document


def _build_series(step: float, values: Floats) -> dict[str, Any]:
    rows = np.atleast_2d(values)
    seconds = [index * step for index in range(rows.shape[1])]
    known = {
        name: [None if value != value else value for value in row]
        for name, row in zip(("values", "low", "high"), rows.tolist(), strict=False)
    }
    time, kept = downsample(seconds, known, PLOT_POINTS)
    return {"low": [], "high": [], **kept, "seconds": time}
