"""Tables and figures of the papers: their declarations, several seeds, and the comparison with a paper's values."""

import numpy as np
import pytest

from controllers.simulation.figures.catalog import FIGURES
from controllers.simulation.figures.figure import HOUTMAN, PaperFigure, compare, vary
from controllers.simulation.scenario import METRICS, Scenario, ScenarioOutcome
from controllers.simulation.seeds import compute_band, run_seeds

EVERY = pytest.mark.parametrize("figure", FIGURES.values(), ids=list(FIGURES))
WORKERS = PaperFigure(
    name="a",
    paper=HOUTMAN,
    number="Table 1",
    title="",
    finding="",
    scenario="manager",
    laws=("worker_rate", "thesis"),
    metrics=("worker_runs",),
    cases=vary("upper_limit", 50, 250),
    reported={"worker_runs": {"thesis@50": 100.0, "thesis@250": (None, 80.0)}},
    loss_to="worker_rate",
)


@EVERY
def test_a_figure_names_laws_settings_and_metrics_that_its_scenario_has(figure):
    scenario = figure.declared_scenario
    assert scenario.read_laws(list(figure.laws)) == list(figure.laws)
    for name, run in figure.runs.items():
        scenario.read_settings(run.settings)
        assert len(name) <= 60 and not set(name) & set(" /")
    assert set(figure.metrics) <= set(METRICS)
    assert figure.axis in ("", *(setting.name for setting in scenario.settings))


@EVERY
def test_every_value_of_the_paper_belongs_to_a_run_and_a_metric_of_the_figure(figure):
    for metric, values in figure.reported.items():
        assert metric in (*figure.metrics, "relative_loss")
        assert values.keys() <= figure.runs.keys()


def test_a_value_matches_a_number_within_a_fifth_and_a_range_inside():
    rows = {
        (row.metric, row.run): row
        for row in compare(
            WORKERS,
            {"thesis@50": {"worker_runs": 119.0}, "thesis@250": {"worker_runs": 81.0}},
            {"thesis@50": {"worker_runs": [110.0, 128.0]}},
        )
    }
    assert rows["worker_runs", "thesis@50"].agrees is True
    assert rows["worker_runs", "thesis@50"].band == (110.0, 128.0)
    assert rows["worker_runs", "thesis@250"].agrees is False
    assert rows["worker_runs", "worker_rate@50"].agrees is None


def test_a_value_that_was_not_run_yet_neither_matches_nor_differs():
    assert {row.agrees for row in compare(WORKERS, {}, {})} == {None}


def test_a_relative_loss_compares_with_the_reference_in_the_same_case():
    results = {"worker_rate@50": {"worker_runs": 200.0}, "thesis@50": {"worker_runs": 150.0}}
    losses = {row.run: row.ours for row in compare(WORKERS, results, {}) if row.metric == "relative_loss"}
    assert losses == {"thesis@50": 0.25, "thesis@250": None}


def test_several_seeds_give_the_mean_and_the_band_of_student_s_t():
    def run(law, settings, seed, trace):
        return ScenarioOutcome({"threads": float(seed), "share": None}, {"threads": np.full(3, float(seed))}, 2.0)

    found = run_seeds(Scenario("s", "", ("a",), (), (), run), "a", {}, [1, 2, 3], None)
    assert found.metrics == {"threads": 2.0, "share": None}
    # t(2, 97.5 %) = 4.3027 times the standard error 1/√3.
    assert found.bands == {"threads": pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-3)}
    assert found.series["threads"].shape == (3, 3) and found.series_seconds == 2.0


def test_a_single_seed_has_no_confidence_band():
    outcome = ScenarioOutcome({"threads": 4}, {"threads": np.ones(3)}, 2.0)
    found = run_seeds(Scenario("s", "", ("a",), (), (), lambda *_: outcome), "a", {}, [7], None)
    assert found.metrics == {"threads": 4} and not found.bands
    np.testing.assert_array_equal(found.series["threads"], np.ones(3))
    np.testing.assert_array_equal(compute_band(np.array([5.0])), [5.0, 5.0, 5.0])
