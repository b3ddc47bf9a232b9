"""The shipped runs of the lab's scenarios: the modules in this folder with `SHIPPED = ShippedRun(…)`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import django
from django.apps import apps

from common.errors import BadInput
from controllers.framework.discovery import import_modules
from controllers.simulation.scenario import Floats, Scenario, ScenarioOutcome, get_metric
from workers import twin

NAME = "shipped"  # of the result, beside those of the laws
Run = Callable[[Mapping[str, Any], int, Floats | None], ScenarioOutcome]


@dataclass(frozen=True)
class ShippedRun:
    """The run of a scenario with the loops as they ship; `run(settings, seed, trace)` runs it.

    law: the pure law of the scenario that it is compared with; "": the scenario's first. metric: the main metric, which
    has a better value; "": the scenario's first.
    """

    scenario: Scenario
    run: Run
    law: str = ""
    metric: str = ""

    def get_law(self) -> str:
        return self.law or self.scenario.laws[0]

    def get_metric(self) -> str:
        judged = (name for name in self.scenario.metrics if get_metric(name).better != "none")
        return self.metric or next(judged)


@lru_cache(maxsize=1)
def find_shipped_runs() -> Mapping[str, ShippedRun]:
    """Return scenario → its shipped run. Raise `ValueError` if a scenario has two."""
    if not apps.ready:  # The loops are models, which the command `lab` and simulations don't load otherwise.
        django.setup()
    runs: dict[str, ShippedRun] = {}
    for module in import_modules(twin):
        if isinstance(shipped := getattr(module, "SHIPPED", None), ShippedRun):
            name = shipped.scenario.name
            if name in runs:
                raise ValueError(f"the scenario {name} has two shipped runs")
            runs[name] = shipped
    return dict(sorted(runs.items()))


def get_shipped_run(scenario: Scenario) -> ShippedRun:
    """Return the shipped run of a scenario. Raise `BadInput` if it has none."""
    runs = find_shipped_runs()
    if scenario.name not in runs:
        known = ", ".join(runs)
        raise BadInput("--shipped", f"is not available for the scenario {scenario.name} yet; it is for {known}")
    return runs[scenario.name]


def list_laws(scenario: Scenario) -> list[str]:
    """Return the scenario's laws, and `shipped` if it has a shipped run."""
    return [*scenario.laws, *([NAME] if scenario.name in find_shipped_runs() else [])]


def read_laws(scenario: Scenario, names: Sequence[str], shipped: bool = False) -> list[str]:
    """Return the requested laws, or all, and `shipped` last if it is requested. Raise `BadInput`."""
    asked = [name for name in names if name != NAME]
    laws = scenario.read_laws(asked) if asked or NAME not in names else []
    if not shipped and NAME not in names:
        return laws
    get_shipped_run(scenario)
    return [*laws, NAME]


def run_laws(
    scenario: Scenario, laws: Iterable[str], settings: Mapping[str, Any], seed: int, trace: Floats | None
) -> dict[str, ScenarioOutcome]:
    """Run these laws of a scenario, of which `shipped` is one."""
    return {
        law: get_shipped_run(scenario).run(settings, seed, trace)
        if law == NAME
        else scenario.run(law, settings, seed, trace)
        for law in laws
    }
