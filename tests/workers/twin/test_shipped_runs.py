"""The loops as they ship do on the simulated plant what their laws do in the lab."""

import pytest

from controllers.simulation.scenario import get_metric
from workers.twin import catalog

TOLERANCE = 0.1
SEED = 3
# Seeds and settings for which the law beats a baseline in a short run.
SEEDS = {"crash": 2}
SETTINGS = {"churn": {"nodes": 20, "containers": 100, "hours": 3, "leaving": 0.1}, "shedding": {"seconds": 3_000.0}}
# Other metrics of the shipped run, and their maximum values, whatever the law achieves.
MAX_VALUES = {"shedding": {"bound_violations": 0.01}}
# Other settings of a scenario that are tested, too.
VARIANTS = {"concurrency-live": [{"bottleneck": "memory"}]}


def list_cases():
    return [
        pytest.param(shipped, settings, id="-".join((name, *(str(value) for value in settings.values()))))
        for name, shipped in catalog.find_shipped_runs().items()
        for settings in [SETTINGS.get(name, {}), *VARIANTS.get(name, [])]
    ]


def is_better(metric, one, other):
    """Whether a value of the metric is better than another; None is the worst."""
    if one is None or other is None:
        return one is not None
    return one < other if get_metric(metric).better == "lower" else one > other


def allow_for(metric, value):
    """The worst value that is still within the tolerance."""
    share = TOLERANCE if get_metric(metric).better == "lower" else -TOLERANCE
    return None if value is None else value + share * abs(value)


@pytest.mark.thorough
@pytest.mark.parametrize(("shipped", "settings"), list_cases())
def test_the_shipped_loop_does_what_its_law_does_and_beats_the_baselines_that_it_beats(shipped, settings):
    scenario, law, metric = shipped.scenario, shipped.get_law(), shipped.get_metric()
    offered, settings = catalog.add_shipped_run(scenario), scenario.read_settings(settings)
    seed = SEEDS.get(scenario.name, SEED)
    metrics = {name: offered.run(name, settings, seed, None).metrics for name in offered.laws}
    values = {each: metrics_of_law[metric] for each, metrics_of_law in metrics.items()}
    baselines = [each for each in scenario.laws if each != law and is_better(metric, values[law], values[each])]
    assert not is_better(metric, allow_for(metric, values[law]), values[catalog.NAME]), values
    assert [each for each in baselines if not is_better(metric, values[catalog.NAME], values[each])] == [], values
    shipped_metrics, most = metrics[catalog.NAME], MAX_VALUES.get(scenario.name, {})
    assert {name: shipped_metrics[name] for name, limit in most.items() if shipped_metrics[name] > limit} == {}


@pytest.mark.thorough
def test_admission_stays_steady_after_the_results_of_an_event_have_become_larger():
    shipped = catalog.find_shipped_runs()["flow"]
    settings = shipped.scenario.read_settings({"gain_factor": 3.0})
    law = shipped.scenario.run("adaptive", settings, SEED, None).metrics
    loop = shipped.run(settings, SEED, None).metrics
    assert loop["rms"] <= allow_for("rms", law["rms"])
    assert loop["served_share"] > 0.99
