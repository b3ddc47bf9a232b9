"""An upgrade over hosts while events flow: the database is migrated under the processes of the version
before, which then give way to new ones, one after another, as Compose does it. The servers stay.
"""

import json
import logging
import subprocess
from itertools import pairwise

import pytest

from bench.plant.running_plant import ROOT
from tests.hosts.flow import Flow
from tests.hosts.whole_plant import is_whole, whole_plant
from tests.production.engine import CACHE, checkout, version_before
from tests.waiting import until

logger = logging.getLogger(__name__)
pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.alone, pytest.mark.timeout(1500)]
AGAIN_SECONDS = 120.0


@pytest.fixture(scope="module")
def before():
    """A checkout of the version before, with the packages of its own lock file; kept for the next run."""
    commit = version_before()
    folder = CACHE.with_name(f"weir-{commit}")
    if not folder.exists():
        checkout(folder, commit)
    subprocess.run([folder / "bin" / "venv"], cwd=folder, check=True, capture_output=True)
    return folder


def test_an_upgrade_while_events_flow_loses_repeats_and_forgets_nothing(before, tmp_path):
    with whole_plant(tmp_path, before) as plant:
        missing = json.loads(migrations_missing(plant.database_url))
        with Flow(plant, "upgrade") as flow:
            until(lambda: len(flow.acknowledged) > 500, 60)
            loops = plant.ask("SELECT name, mode, parameters::text FROM workers_loop ORDER BY name")
            ends = dict(plant.ask("SELECT loop_id, max(fence) FROM workers_ledgerentry GROUP BY loop_id"))
            plant.code = ROOT
            plant.set_up()
            published = len(flow.acknowledged)
            for name in plant.parts():
                plant.end_part(name)
                plant.begin_part(name)
            seconds, _ = plant.until(is_whole, AGAIN_SECONDS, "the plant is whole in the new version")
            until(plant.page_answers, AGAIN_SECONDS, 0.5)
            plant.assert_loops_tick()
            logger.warning(
                "%d migrations; whole %.1f s after the last process began; %d events taken meanwhile",
                *(len(missing), seconds, len(flow.acknowledged) - published),
            )
            assert len(flow.acknowledged) > published
            flow.end()
        assert missing and json.loads(migrations_missing(plant.database_url)) == []
        kept = plant.ask("SELECT name, mode, parameters::text FROM workers_loop ORDER BY name")
        now = {name: (mode, json.loads(parameters)) for name, mode, parameters in kept}
        for name, mode, stored in loops:
            # A migration may add parameters, but keeps those that somebody may have set.
            assert now[name] == (mode, {**now[name][1], **json.loads(stored)}), name
        fences = plant.ask("SELECT loop_id, fence FROM workers_ledgerentry ORDER BY id")
        # Not each loop finds something to do in these seconds; that they tick was asserted above.
        assert any(fence > ends.get(loop, fence) for loop, fence in fences)
        for loop in ends:
            own = [fence for each, fence in fences if each == loop]
            assert all(after > fence for fence, after in pairwise(own))
        plant.manage("audit", "verify")  # fails where the chain is not whole


def migrations_missing(database_url: str) -> str:
    """Of this version's, in a process of its own: Django is set up once a process."""
    line = (
        "import json, django; django.setup(); from django.db import connection; "
        "from django.db.migrations.executor import MigrationExecutor as E; e = E(connection); "
        "print(json.dumps([str(each) for each in e.migration_plan(e.loader.graph.leaf_nodes())]))"
    )
    environment = {"DATABASE_URL": database_url, "DJANGO_SETTINGS_MODULE": "console.settings", "PATH": "/usr/bin"}
    python = [str(ROOT / ".venv" / "bin" / "python"), "-c", line]
    return subprocess.run(python, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout
