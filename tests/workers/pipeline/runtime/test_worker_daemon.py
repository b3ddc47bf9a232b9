"""The process that Spark's Python workers are forked from."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark

INSTALLED = Path(pyspark.__file__).parent
ARCHIVES = sorted((INSTALLED / "python" / "lib").glob("*.zip"))
SAID = """
import sys
from zipimport import zipimporter
from workers.pipeline.runtime.worker_daemon import prefer_installed
prefer_installed()
import pyspark.version
print(pyspark.version.__file__)
print(sum(isinstance(importer, zipimporter) for importer in sys.path_importer_cache.values()))
"""


def test_pyspark_is_imported_as_it_is_installed_and_no_archive_is_searched():
    path = os.pathsep.join([*map(str, ARCHIVES), str(Path.cwd())])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", SAID]
    emitted = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert emitted.stdout.split() == [str(INSTALLED / "version.py"), "0"]
