"""Statistics over seeds say no more of which lines run: they are not measured, which halves their time. Nor
are the scenarios of the lab, but where `./test --all` counts everything.
"""

import os
from pathlib import Path

import pytest

SIMULATION = Path(__file__).parent / "simulation"
STATISTICS = (
    "test_the_tables_of_the_thesis_come_out_within_a_fifth_on_average",
    "test_started_by_what_waits_it_beats_every_row_of_the_tables_in_waiting_and_in_runs",
    "test_the_explorer_needs_half_the_steps_for_the_same_threads_and_shares_as_well",
    "test_the_chance_of_hitting_the_right_container_is_the_share_of_table_4_1",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    scenarios_too = os.environ.get("WEIR_TEST_COUNTED") == "all"
    for item in items:
        is_scenario = item.path.is_relative_to(SIMULATION) and not scenarios_too
        if is_scenario or any(name in item.nodeid for name in STATISTICS):
            item.add_marker("no_cover")
