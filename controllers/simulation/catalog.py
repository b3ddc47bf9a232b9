"""The scenarios of the lab by name: the modules in this folder with `SCENARIO = Scenario(…)`."""

from collections.abc import Mapping

from controllers import simulation
from controllers.framework.discovery import import_modules
from controllers.simulation.scenario import Scenario


def find_scenarios() -> dict[str, Scenario]:
    """Return name → scenario, sorted by name. Raise `ValueError` if two have the same name."""
    scenarios: dict[str, Scenario] = {}
    for module in import_modules(simulation):
        if isinstance(scenario := getattr(module, "SCENARIO", None), Scenario):
            if scenario.name in scenarios:
                raise ValueError(f"two scenarios have the name {scenario.name}")
            scenarios[scenario.name] = scenario
    return dict(sorted(scenarios.items()))


SCENARIOS: Mapping[str, Scenario] = find_scenarios()
