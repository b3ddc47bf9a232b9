"""Experiments of the lab as documents: results side by side, series as they are drawn, the command."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.db.models import QuerySet

from console.display.downsampling import downsample
from controllers.simulation.catalog import SCENARIOS
from controllers.simulation.model.metrics import best, metric, names_of
from controllers.simulation.model.scenario import Floats
from workers.lab.models import Experiment, ExperimentResult
from workers.lab.series import read_series
from workers.models import Run

PLOT_POINTS = 600


def experiments() -> QuerySet[Experiment]:
    """With what their documents need, in few queries."""
    return Experiment.objects.select_related("run", "owner").prefetch_related("results")


def experiment_document(experiment: Experiment) -> dict[str, Any]:
    """An experiment as JSON, with what has come out so far."""
    run = experiment.run
    return {
        "id": experiment.pk,
        "scenario": experiment.scenario,
        "title": experiment.title,
        "laws": experiment.laws,
        "parameters": experiment.settings,
        "changed": changed_settings(experiment),
        "seed": experiment.seed,
        "trace": experiment.trace,
        "owner": experiment.owner.get_username() if experiment.owner else None,
        "created_at": experiment.created_at.isoformat(),
        "run": run and run.pk,
        "state": run.state if run else Run.State.DONE,
        "error": run.error if run else "",
        "results": {result.law: result.metrics for result in _results(experiment)},
        "seconds": {result.law: result.seconds for result in _results(experiment)},
        "command": command_of(experiment),
        "progress": run.progress if run else {},
    }


def _results(experiment: Experiment) -> list[ExperimentResult]:
    """In the order of the experiment's laws."""
    return sorted(experiment.results.all(), key=lambda result: experiment.laws.index(result.law))


def changed_settings(experiment: Experiment) -> dict[str, Any]:
    """Those that aren't the scenario's own."""
    scenario = SCENARIOS.get(experiment.scenario)
    defaults = {each.name: each.default for each in scenario.settings} if scenario else {}
    return {name: value for name, value in experiment.settings.items() if defaults.get(name) != value}


def command_of(experiment: Experiment) -> str:
    """The same from a command line."""
    scenario = SCENARIOS.get(experiment.scenario)
    words = ["manage.py", "lab", "run", experiment.scenario]
    if scenario is None or set(experiment.laws) != set(scenario.laws):
        words += [word for law in experiment.laws for word in ("--law", law)]
    for name, value in changed_settings(experiment).items():
        text = f"{value:.12g}" if isinstance(value, int | float) else str(value)
        words += ["--set", f"{name}={text}"]
    words += ["--seed", str(experiment.seed)]
    if experiment.trace:
        words += ["--trace", experiment.trace["name"], "--column", experiment.trace["column"]]
    return shlex.join(words)


def results_table(experiments: Iterable[Experiment]) -> dict[str, Any]:
    """{"metrics": [{name, unit, better}], "rows": [{experiment, law, seconds, cells: [{value, best}]}]}: the
    best of each metric over all rows.
    """
    rows = [(experiment, result) for experiment in experiments for result in _results(experiment)]
    names = names_of(result.metrics for _, result in rows)
    winners = {name: best(name, [result.metrics.get(name) for _, result in rows]) for name in names}
    return {
        "metrics": [{"name": name, **vars(metric(name))} for name in names],
        "rows": [
            {
                "experiment": experiment,
                "law": result.law,
                "seconds": result.seconds,
                "cells": [_cell(result.metrics.get(name), winners[name]) for name in names],
            }
            for experiment, result in rows
        ],
    }


def _cell(value: Any, winner: float | None) -> dict[str, Any]:
    return {"value": value, "best": winner is not None and value == winner}


def series_names(data: Path, experiments: Iterable[Experiment]) -> list[str]:
    """Every series that any law has, in their order."""
    found = (
        read_series(data, experiment.pk, result.law)[1]
        for experiment in experiments
        for result in _results(experiment)
    )
    return list(dict.fromkeys(name for columns in found for name in columns))


def series_document(data: Path, experiment: Experiment) -> dict[str, Any]:
    """{law: {series: {"seconds": [...], "values": [...]}}}, in few enough points to be drawn."""
    document: dict[str, Any] = {}
    for result in _results(experiment):
        step, columns = read_series(data, experiment.pk, result.law)
        document[result.law] = {name: _plotted(step, values) for name, values in columns.items()}
    return document


def _plotted(step: float, values: Floats) -> dict[str, Any]:
    seconds = [index * step for index in range(len(values))]
    known = [None if value != value else value for value in values.tolist()]
    time, kept = downsample(seconds, {"": known}, PLOT_POINTS)
    return {"seconds": time, "values": kept[""]}
