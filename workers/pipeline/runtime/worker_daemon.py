"""The process that Spark's Python workers are forked from: `spark.python.daemon.module`.

It has imported what their tasks need: importing it takes a worker a second, as long as half a million events. Spark
starts one such process for each kind of worker; workers that only read sources need nothing.
"""

import gc
import sys
from importlib import import_module
from importlib.util import find_spec
from zipimport import zipimporter

from common.files import keep_private

TASKS = "pyspark.worker"  # the kind that executes tasks
NEEDED = (
    "workers.pipeline.runtime.long_tasks",
    "workers.pipeline.tiers.event_source",
    "workers.pipeline.tiers.arrow_task",
    "workers.pipeline.tiers.operators",
    "workers.pipeline.tiers.result_writer",
)


def prefer_installed() -> None:
    """Put the installed PySpark before the archives of PySpark that Spark names.

    Code from an archive is compiled each time, and each task reads the archive's directory again.
    """
    named = list(sys.path)
    sys.path[:] = [path for path in named if not path.endswith(".zip")]
    if find_spec("pyspark") is None:
        sys.path[:] = named
        return
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]


if __name__ == "__main__":
    keep_private()
    prefer_installed()
    daemon = import_module("pyspark.daemon")
    if TASKS in sys.argv:
        for name in NEEDED:
            import_module(name)
    gc.collect()
    gc.freeze()  # a worker's garbage collector leaves these pages alone, so all workers share them
    daemon.manager()
