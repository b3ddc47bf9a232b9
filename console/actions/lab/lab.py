"""The lab as people use it: an experiment as it is asked for, and what of it the plant may take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from console.actions.lab.traces import Trace
from controllers import catalog as laws
from controllers.framework.parameter import Parameter
from controllers.rebalancing import law as rebalancing
from controllers.simulation.catalog import SCENARIOS
from controllers.simulation.model.scenario import Scenario
from queues import checks
from queues.errors import BadInput
from queues.text.numbers import decimal_number
from workers.batch.jobs.experiment import check_cost
from workers.lab.models import Experiment

# A loop's cadence is its own: it isn't a matter of taste that an experiment could settle.
NOT_APPLIED = ("interval_seconds",)
MOST_TITLE = 120


@dataclass(frozen=True)
class WantedExperiment:
    """An experiment to be; checked."""

    scenario: Scenario
    laws: list[str]
    settings: dict[str, Any]
    seed: int
    title: str = ""
    trace: Trace | None = None


@dataclass(frozen=True)
class Applicable:
    """What a law of the lab means for the plant: a law there, and values of its parameters."""

    law: str
    values: Mapping[str, Any]
    moves_points: bool


def scenario_named(name: str) -> Scenario:
    """Raises BadInput."""
    if name not in SCENARIOS:
        raise BadInput("scenario", f"{name[:40]} is not known; there are {', '.join(SCENARIOS)}.")
    return SCENARIOS[name]


def read_wanted(
    name: str,
    names_of_laws: Sequence[str],
    settings: Mapping[str, Any],
    seed: Any,
    title: str = "",
    trace: Trace | None = None,
) -> WantedExperiment:
    """Raises BadInput naming scenario, law, seed, title or the setting."""
    scenario = scenario_named(name)
    if not checks.is_whole(seed, 0, 2**63 - 1):
        raise BadInput("seed", f"takes a whole number from 0 up, not {str(seed)[:40]}.")
    if len(title) > MOST_TITLE:
        raise BadInput("title", f"takes at most {MOST_TITLE} characters.")
    try:
        read = scenario.read_laws(names_of_laws)
        values = scenario.read_settings(settings)
        check_cost(scenario, values, len(read))
    except BadInput as error:
        raise at_field(error) from None
    return WantedExperiment(scenario, read, values, seed, title.strip(), trace)


def at_field(error: BadInput) -> BadInput:
    """An error of the command line at the field of a form or a body."""
    return BadInput(error.field.removeprefix("--set ").removeprefix("--"), error.message)


def typed_setting(declared: Parameter, text: str) -> Any:
    """A setting as its kind takes it. Raises BadInput naming it."""
    if declared.kind in ("choice", "text"):
        return text
    value = decimal_number(text)
    if value is None:
        raise BadInput(declared.name, f"{declared.takes()}, not {text[:40]!r}.")
    return value


def applicable(experiment: Experiment) -> dict[str, Applicable]:
    """Law of the lab → what the plant may take of it: parameters of its own law that are settings here."""
    scenario = SCENARIOS.get(experiment.scenario)
    if scenario is None:
        return {}
    found = {law: _applicable(scenario, law, experiment.settings) for law in experiment.laws}
    return {law: each for law, each in found.items() if each is not None}


def _applicable(scenario: Scenario, law: str, settings: Mapping[str, Any]) -> Applicable | None:
    name, fixed = scenario.steers.get(law, (law, {}))
    if name not in laws.LAWS:
        return None
    known = {each.name for each in laws.LAWS[name].parameters} - set(NOT_APPLIED)
    values = {key: value for key, value in settings.items() if key in known} | dict(fixed)
    return Applicable(name, values, name == rebalancing.LAW.name) if values else None
