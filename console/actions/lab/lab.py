"""The lab as people use it: a requested experiment, and which of its results the plant may apply."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common import checks
from common.errors import BadInput
from common.parameter import Parameter
from common.parsing import parse_decimal_number
from console.actions.lab.traces import Trace
from controllers import catalog as laws
from controllers.rebalancing import law as rebalancing
from controllers.simulation.catalog import SCENARIOS
from controllers.simulation.model.scenario import Scenario
from workers.batch.jobs.experiment import check_cost
from workers.lab.models import Experiment

# A loop's cadence is its own: an experiment can't determine it.
NOT_APPLIED = ("interval_seconds",)
MAX_TITLE = 120


@dataclass(frozen=True)
class WantedExperiment:
    scenario: Scenario
    laws: list[str]
    settings: dict[str, Any]
    seed: int
    title: str = ""
    trace: Trace | None = None


@dataclass(frozen=True)
class PlantEquivalent:
    """The plant's equivalent of a law of the lab: a law, and values of its parameters."""

    law: str
    values: Mapping[str, Any]
    moves_points: bool


def get_scenario(name: str) -> Scenario:
    """Return the scenario of that name. Raises `BadInput`."""
    if name not in SCENARIOS:
        raise BadInput("scenario", f"{name[:40]} is unknown; choose one of {', '.join(SCENARIOS)}.")
    return SCENARIOS[name]


def read_wanted(
    name: str,
    names_of_laws: Sequence[str],
    settings: Mapping[str, Any],
    seed: Any,
    title: str = "",
    trace: Trace | None = None,
) -> WantedExperiment:
    """Validate a new experiment. Raises `BadInput` that names scenario, law, seed, title, or the setting."""
    scenario = get_scenario(name)
    if not checks.is_whole(seed, 0, 2**63 - 1):
        raise BadInput("seed", f"must be a whole number of at least 0, not {str(seed)[:40]}.")
    if len(title) > MAX_TITLE:
        raise BadInput("title", f"must have at most {MAX_TITLE} characters.")
    try:
        read = scenario.read_laws(names_of_laws)
        values = scenario.read_settings(settings)
        check_cost(scenario, values, len(read))
    except BadInput as error:
        raise move_to_field(error) from None
    return WantedExperiment(scenario, read, values, seed, title.strip(), trace)


def move_to_field(error: BadInput) -> BadInput:
    return BadInput(error.field.removeprefix("--set ").removeprefix("--"), error.message)


def parse_setting(declared: Parameter, text: str) -> Any:
    """Parse a setting as its kind. Raises `BadInput` that names it."""
    if declared.kind in ("choice", "text"):
        return text
    value = parse_decimal_number(text)
    if value is None:
        raise BadInput(declared.name, f"{declared.takes()}, not {text[:40]!r}.")
    return value


def list_applicable_settings(experiment: Experiment) -> dict[str, PlantEquivalent]:
    """Return by law of the lab what the plant may apply: parameters of its own law that are settings here."""
    scenario = SCENARIOS.get(experiment.scenario)
    if scenario is None:
        return {}
    values_by_law = {law: _build_applicable(scenario, law, experiment.settings) for law in experiment.laws}
    return {law: each for law, each in values_by_law.items() if each is not None}


def _build_applicable(scenario: Scenario, law: str, settings: Mapping[str, Any]) -> PlantEquivalent | None:
    name, fixed = scenario.steers.get(law, (law, {}))
    if name not in laws.LAWS:
        return None
    known = {parameter.name for parameter in laws.LAWS[name].parameters} - set(NOT_APPLIED)
    values = {key: value for key, value in settings.items() if key in known} | dict(fixed)
    return PlantEquivalent(name, values, name == rebalancing.LAW.name) if values else None
