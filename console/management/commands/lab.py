"""`manage.py lab list`, `lab run`, and `lab figure`: the scenarios of the simulated plant, and the papers' results."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import cycle
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from common.errors import BadInput
from common.files import iterate_csv_text
from common.parsing import parse_decimal_number, parse_option_whole_number
from console.management.document import JsonCommand
from controllers.simulation.catalog import SCENARIOS
from controllers.simulation.figures.catalog import FIGURES
from controllers.simulation.figures.figure import compare
from controllers.simulation.scenario import Floats, Scenario, ScenarioOutcome
from controllers.simulation.seeds import run_seeds
from workers.lab.trace_files import read_trace
from workers.twin.catalog import NAME, add_shipped_run

DEFAULT_SEED = 1


class Command(JsonCommand):
    help = "Run scenarios on the simulated plant, and compare laws with baselines."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=["list", "run", "figure"])
        parser.add_argument("scenario", nargs="?", help="the scenario, or for `figure` the table or figure of a paper")
        parser.add_argument("--law", action="append", default=[])
        parser.add_argument("--set", action="append", default=[], metavar="key=value")
        parser.add_argument("--shipped", action="store_true", help="also run the loops as they ship")
        parser.add_argument("--seed", type=parse_option_whole_number)
        parser.add_argument("--seeds", type=parse_option_whole_number, help="number of seeds of a figure's runs")
        parser.add_argument("--trace", metavar="FILE")
        parser.add_argument("--column", metavar="COL")
        parser.add_argument("--series", metavar="FILE.csv")
        parser.add_argument("--html", metavar="FILE")
        parser.add_argument("--json", action="store_true", help="print JSON on a terminal, too")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        if options["what"] == "run":
            check_unused(options, "seeds", "figure")
            return self.run_scenario(options)
        if options["what"] == "figure":
            for name in ("law", "set", "shipped", "series", "html"):
                check_unused(options, name, "run")
            return self.run_figure(options)
        check_alone(options)
        return {
            "scenarios": {
                scenario.name: {
                    "laws": list(scenario.laws),
                    "settings": [setting.name for setting in scenario.settings],
                    "metrics": list(scenario.metrics),
                    "ready": True,
                }
                for scenario in SCENARIOS.values()
            },
            "figures": {
                figure.name: {"paper": figure.paper.reference, "number": figure.number, "scenario": figure.scenario}
                for figure in FIGURES.values()
            },
        }

    def run_figure(self, options: dict[str, Any]) -> dict[str, Any]:
        figure = FIGURES.get(options["scenario"] or "")
        if figure is None:
            raise BadInput("FIGURE", f"figure {options['scenario']} is unknown. Choose one of {', '.join(FIGURES)}.")
        seed, count = read_seed(options), options["seeds"] or figure.seeds
        scenario, trace = figure.declared_scenario, trace_of(options["trace"], options["column"])
        outcomes = {
            name: run_seeds(scenario, run.law, scenario.read_settings(run.settings), range(seed, seed + count), trace)
            for name, run in figure.runs.items()
        }
        values = compare(
            figure,
            {name: outcome.metrics for name, outcome in outcomes.items()},
            {name: outcome.bands for name, outcome in outcomes.items()},
        )
        return {
            "figure": figure.name,
            "paper": figure.paper.reference,
            "number": figure.number,
            "scenario": figure.scenario,
            "seed": seed,
            "seeds": count,
            "agreeing": sum(value.agrees is True for value in values),
            "reported": sum(value.is_reported for value in values),
            "values": [asdict(value) for value in values],
        }

    def run_scenario(self, options: dict[str, Any]) -> dict[str, Any]:
        scenario = find_scenario(options["scenario"])
        names = options["law"]
        if options["shipped"]:
            scenario, names = add_shipped_run(scenario), [*names, NAME] if names else []
        laws = scenario.read_laws(names)
        settings = scenario.read_settings(parse_settings(options["set"]))
        seed = read_seed(options)
        trace = trace_of(options["trace"], options["column"])
        files = [option for option in ("series", "html") if options[option] is not None]
        for option in files:  # before the laws run, which may take minutes
            check_writable(options[option], f"--{option}")
        outcomes = {law: scenario.run(law, settings, seed, trace) for law in laws}
        texts = [
            format_series_csv(outcomes) if option == "series" else render_page(scenario, settings, outcomes)
            for option in files
        ]
        for option, text in zip(files, texts, strict=True):
            write(options[option], text, f"--{option}")
        return {
            "scenario": scenario.name,
            "parameters": settings,
            "seed": seed,
            "results": {law: dict(outcome.metrics) for law, outcome in outcomes.items()},
        }

    def format_output(self, document: dict[str, Any]) -> str:
        if "results" in document:
            return format_table(document["results"])
        if "values" in document:
            return format_figure(document)
        rows = document["scenarios"].items()
        lines = [f"{name:<18}{'ready':<9}{' '.join(row['laws'])}" for name, row in rows]
        return "\n".join([*lines, *(f"{name:<32}{row['number']}" for name, row in document["figures"].items())])


def find_scenario(name: str | None) -> Scenario:
    """Return the scenario. Raises `BadInput` for an unknown name."""
    if name is not None and name in SCENARIOS:
        return SCENARIOS[name]
    raise BadInput("SCENARIO", f"scenario {name} is unknown. Choose one of {', '.join(SCENARIOS)}.")


def check_alone(options: dict[str, Any]) -> None:
    """Raise `BadInput` that names an option that `lab list` does not take."""
    if options["scenario"] is not None:
        raise BadInput("SCENARIO", f"applies to lab run only. Omit {options['scenario'][:60]!r}.")
    for name in ("law", "set", "shipped", "seed", "seeds", "trace", "column", "series", "html"):
        if is_given(options[name]):
            raise BadInput(f"--{name}", "applies to lab run only. Omit it, or use lab run.")


def check_unused(options: dict[str, Any], name: str, command: str) -> None:
    """Raise `BadInput` for an option that only the other command takes."""
    if is_given(options[name]):
        raise BadInput(f"--{name}", f"applies to lab {command} only")


def is_given(value: object) -> bool:
    """Return whether an option was given; a seed of 0 was."""
    return value is not None and value is not False and value != []


def read_seed(options: dict[str, Any]) -> int:
    seed = DEFAULT_SEED if options["seed"] is None else int(options["seed"])
    if seed < 0:
        raise BadInput("--seed", f"must be 0 or more, not {seed}")
    if options["seeds"] is not None and options["seeds"] < 1:
        raise BadInput("--seeds", f"must be 1 or more, not {options['seeds']}")
    return seed


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Parse each `key=value`. Raises `BadInput`, also for a repeated key."""
    values: dict[str, Any] = {}
    for text in texts:
        key, value = parse_setting(text)
        if key in values:
            raise BadInput("--set", f"{key} is set twice. Set it once.")
        values[key] = value
    return values


def parse_setting(text: str) -> tuple[str, Any]:
    """Parse `key=value` as a name and a number, a truth value as 1 or 0, or text. Raises `BadInput`."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise BadInput("--set", f"must be key=value, not {text!r}")
    if value.lower() in ("true", "false"):
        return key, int(value.lower() == "true")
    number = parse_decimal_number(value)
    return key, value if number is None else number


def trace_of(path: str | None, column: str | None) -> Floats | None:
    """Return the requested arrivals; None: the scenario's own. Raises `BadInput` that names the option."""
    if path is not None:
        return read_trace(path, column)
    if column is not None:
        raise BadInput("--column", "requires --trace, the file that has the column")
    return None


def check_writable(path: str, option: str) -> None:
    """Raise `BadInput` that names the option if the file can't be written."""
    place = Path(path)
    why = "it is a folder" if place.is_dir() else None
    if not place.exists() and not place.parent.is_dir():
        why = f"{place.parent} is not a folder"
    if why is None and not os.access(place if place.exists() else place.parent, os.W_OK):
        why = "Permission denied"
    if why is not None:
        raise BadInput(option, f"{path} can't be written ({why})")


def write(path: str, text: str, option: str) -> None:
    """Write the requested file. Raises `BadInput` that names the option."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(option, f"{path} can't be written ({error.strerror})") from error


def format_series_csv(outcomes: Mapping[str, ScenarioOutcome]) -> str:
    """Return one row for each law and instant: law, seconds, then every series."""
    names = list(dict.fromkeys(name for outcome in outcomes.values() for name in outcome.series))
    rows = []
    for law, outcome in outcomes.items():
        length = max((len(values) for values in outcome.series.values()), default=0)
        for index in range(length):
            cells = [f"{outcome.series[name][index]:g}" if name in outcome.series else "" for name in names]
            rows.append([law, f"{index * outcome.series_seconds:g}", *cells])
    return "".join(iterate_csv_text(["law", "seconds", *names], [rows]))


def render_page(scenario: Scenario, settings: Mapping[str, Any], outcomes: Mapping[str, ScenarioOutcome]) -> str:
    """Return a stand-alone page: one plot for each series, with a line for each law."""
    # Only this part of the command needs it, and it takes a while to load.
    from plotly.colors import qualitative
    from plotly.subplots import make_subplots

    names = list(dict.fromkeys(name for outcome in outcomes.values() for name in outcome.series))
    words = ", ".join(f"{key} = {format_setting(value)}" for key, value in settings.items())
    figure = make_subplots(rows=len(names), cols=1, shared_xaxes=True, subplot_titles=names)
    colours = dict(zip(outcomes, cycle(qualitative.Plotly), strict=False))
    for law, outcome in outcomes.items():
        for row, name in enumerate(names, 1):
            values = outcome.series.get(name)
            if values is not None:
                hours = [index * outcome.series_seconds / 3600 for index in range(len(values))]
                line = {"color": colours[law], "width": 1.2}
                figure.add_scatter(
                    x=hours, y=list(values), name=law, legendgroup=law, showlegend=row == 1, line=line, row=row, col=1
                )
    figure.update_xaxes(title_text="hours", row=len(names), col=1)
    figure.update_layout(title=f"{scenario.name}: {words}", height=220 * len(names) + 120)
    return str(figure.to_html(include_plotlyjs=True, full_html=True))


def format_setting(value: object) -> str:
    """Return a setting: a number in short, a choice as it is."""
    return value if isinstance(value, str) else f"{value:g}"


def format_metric(value: float | None) -> str:
    """Return a metric for a terminal; a missing one is a dash."""
    return "—" if value is None else f"{value:,g}"


def format_figure(document: Mapping[str, Any]) -> str:
    """Return a line for each value: the paper's number or range, and ours with its confidence band."""
    lines = [f"{'metric':<24}{'run':<28}{'paper':>24}{'ours':>16}  95 % band"]
    for row in document["values"]:
        ends = format_metric(row["low"]), format_metric(row["high"])
        paper = ends[0] if row["low"] == row["high"] else " to ".join(ends)
        band = " to ".join(f"{end:,.5g}" for end in row["band"] or ())
        lines.append(f"{row['metric']:<24}{row['run']:<28}{paper:>24}{format_metric(row['ours']):>16}  {band}")
    return "\n".join([*lines, f"{document['agreeing']} of {document['reported']} values match the paper."])


def format_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for metrics in results.values() for name in metrics))
    rows = [["", *results], *([name, *(format_metric(m[name]) for m in results.values())] for name in names)]
    return "\n".join("".join([f"{row[0]:<24}", *(f"{cell:>15}" for cell in row[1:])]) for row in rows)
