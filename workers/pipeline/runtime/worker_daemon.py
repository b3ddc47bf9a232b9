"""The process that Spark's Python workers are forked from: `spark.python.daemon.module`.

It has imported what their tasks need: to import it anew takes a worker a second, as long as half a million
events. Spark starts one for each kind of worker; those that only read sources need nothing.
"""

import gc
import sys
from importlib import import_module
from importlib.util import find_spec
from zipimport import zipimporter

from queues.private_files import keep_private

TASKS = "pyspark.worker"  # the kind that carries tasks out
NEEDED = (
    "workers.pipeline.intra_event.event_source",
    "workers.pipeline.inter_event.operators",
    "workers.pipeline.intra_event.result_writer",
)


def prefer_installed() -> None:
    """Spark names archives of PySpark before the PySpark that is installed. What comes out of an archive is
    compiled anew, and each task reads the archive's directory again.
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
    gc.freeze()  # a worker's collector leaves these pages alone, so all of them share them
    daemon.manager()
