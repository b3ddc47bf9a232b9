"""The scenarios of the lab that are simulated, by name."""

from collections.abc import Mapping

from controllers.simulation import (
    balance,
    concurrency,
    concurrency_live,
    crash,
    elasticity,
    flow,
    ladder,
    manager,
    queues,
    shedding,
)
from controllers.simulation.model.scenario import Scenario

SCENARIOS: Mapping[str, Scenario] = {
    each.SCENARIO.name: each.SCENARIO
    for each in (
        manager,
        queues,
        crash,
        concurrency,
        concurrency_live,
        flow,
        balance,
        shedding,
        elasticity,
        ladder,
    )
}
