"""The process that Spark's Python workers are forked from: `spark.python.daemon.module`.

It has imported what their tasks need: to import it anew takes a worker a second, as long as half a million
events. Spark starts one for each kind of worker; those that only look sources up need nothing.
"""

import sys
from importlib import import_module

from pyspark.daemon import manager

TASKS = "pyspark.worker"  # the kind that carries tasks out
NEEDED = (
    "workers.pipeline.event_source",
    "workers.pipeline.operators",
    "workers.pipeline.result_writer",
    "pandas",  # which PyArrow imports when it is given the first array of NumPy
)


def forget_archives() -> None:
    """Spark names PySpark's archives, too, beside the PySpark that is installed: each task would read their
    directories anew.
    """
    archives = [path for path in sys.path_importer_cache if path.endswith(".zip")]
    sys.path[:] = [path for path in sys.path if path not in archives]
    for path in archives:
        del sys.path_importer_cache[path]


if __name__ == "__main__":
    if TASKS in sys.argv:
        for name in NEEDED:
            import_module(name)
        forget_archives()
    manager()
