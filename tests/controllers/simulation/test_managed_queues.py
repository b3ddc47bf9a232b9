"""Nodes with a manager for each container: the death spiral, crashes, and the selection among containers."""

import numpy as np
import pytest

from controllers.simulation import managed_queues, selection
from controllers.simulation.managed_queues import AT, SCENARIO


def outcome(law, **settings):
    return SCENARIO.run(law, SCENARIO.read_settings({"noise": 0, **settings}), 1, None)


def test_the_thesis_managers_drive_an_overloaded_node_into_a_spiral_and_weir_s_laws_do_not():
    thesis, weir = outcome("thesis", event="overload"), outcome("weir", event="overload")
    waiting = thesis.series["alert_waiting_events"]
    assert thesis.metrics["overshoot_rate"] > 2 and np.all(np.diff(waiting[::600]) > 0)
    assert weir.metrics["waiting_end"] < 0.3 * weir.metrics["waiting_greatest"]
    assert weir.metrics["waiting_end"] < 0.1 * thesis.metrics["waiting_end"]


def test_a_manager_overshoots_by_more_than_a_factor_of_two_only_without_extra_workers_for_the_backlog():
    on, off = (outcome("thesis", event="manager-crash", backlog=backlog).metrics for backlog in (1, 0))
    assert on["overshoot_rate"] < 2 < off["overshoot_rate"]
    assert max(on["seconds_to_restore"], off["seconds_to_restore"]) <= 600


def test_the_crash_of_a_node_loses_events_only_while_the_balancer_has_not_noticed_it():
    thesis, weir = outcome("thesis", event="node-crash"), outcome("weir", event="node-crash")
    assert weir.metrics["events_lost"] == 0
    # Its share of the events for one to five seconds.
    assert 1 <= thesis.metrics["events_lost"] / (0.85 * 600 * 0.4) <= 5
    rate = thesis.series["alert_worker_rate"]
    assert rate[AT + 60 : AT + 300].max() > rate[AT - 1]


def test_no_event_appears_or_disappears():
    found = outcome("weir", event="manager-crash")
    served = managed_queues.EVENTS_PER_WORKER * found.metrics["worker_runs"]
    assert found.metrics["waiting_end"] + served >= found.series["arrivals_per_second"].sum()


@pytest.mark.parametrize(("law", "share"), [("random-25", 0.25), ("random-40", 0.4)])
@pytest.mark.parametrize("attempts", [1, 3])
def test_a_random_selection_finds_the_container_as_the_corrected_table_says(law, share, attempts):
    found = selection.SCENARIO.run(law, selection.SCENARIO.read_settings({"attempts": attempts}), 1, None)
    assert found.metrics["chance"] == pytest.approx(1 - (1 - share) ** attempts, abs=0.07)


def test_weir_s_law_moves_the_container_that_causes_the_load_at_once():
    found = selection.SCENARIO.run("rebalancing", selection.SCENARIO.read_settings({}), 1, None)
    assert found.metrics["chance"] == 1
