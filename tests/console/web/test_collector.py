"""The web process's collector keeps no request waiting for what was imported at its start."""

import subprocess
import sys

from tests.waiting import MAX_SECONDS

BEGUN = """
import gc
import console.asgi
assert gc.isenabled()
assert gc.get_freeze_count() > 10 * len(gc.get_objects()), (gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_a_collection_goes_through_what_came_after_the_start_alone() -> None:
    subprocess.run([sys.executable, "-c", BEGUN], check=True, timeout=MAX_SECONDS)
