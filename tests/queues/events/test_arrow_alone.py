"""A process of the plant has no pandas that nobody in it asked for."""

import os
import subprocess
import sys

import pytest

from tests.waiting import MAX_SECONDS

BY_ITSELF = """
import sys
import queues.events
import numpy as np
import pyarrow as pa
pa.array(["a", None]), pa.array(np.arange(3)), pa.table({"a": [1, 2], "b": np.array([0.5, 1.5])})
assert "pandas" not in sys.modules, "PyArrow imported pandas"
"""
ASKED_FOR = (
    BY_ITSELF
    + """
import pandas as pd
assert pa.table({"a": [1, 2]}).to_pandas().equals(pd.DataFrame({"a": [1, 2]}))
assert pa.Table.from_pandas(pd.DataFrame({"a": [1, 2]}), preserve_index=False).to_pydict() == {"a": [1, 2]}
assert pa.array(pd.Series([1, 2])).to_pylist() == [1, 2]
"""
)


IN_A_PROCESS = """
import sys
import django
django.setup()
import {0}
assert "pandas" not in sys.modules, "its modules import pandas, as they are read"
import pyarrow as pa
pa.array([1])
assert "pandas" not in sys.modules, "PyArrow imported pandas, given its first list"
"""
PROCESSES = ("console.asgi, console.urls", "workers.pipeline.runtime.source")
OTHERS = (
    "console.management.commands.observe",
    "console.management.commands.alert",
    "console.celery, workers.tasks",
    "queues.publishing.telemetry",
    "workers.pipeline.runtime.application",
    "workers.pipeline.tiers.event_source",
    "workers.pipeline.tiers.operators, workers.pipeline.tiers.result_writer",
)


def run(program: str) -> None:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "console.settings"}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=MAX_SECONDS, env=environment)


@pytest.mark.parametrize("modules", [*PROCESSES, *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)])
def test_no_process_of_a_plant_has_pandas(modules: str) -> None:
    run(IN_A_PROCESS.format(modules))


def test_lists_and_arrays_become_arrow_without_pandas() -> None:
    run(BY_ITSELF)


def test_who_asks_for_pandas_has_it_and_its_frames_travel_as_ever() -> None:
    run(ASKED_FOR)


def test_where_pandas_is_imported_already_nothing_changes() -> None:
    run("import pandas\nimport queues.events\nimport pyarrow as pa\npa.table({'a': [1]}).to_pandas()")
