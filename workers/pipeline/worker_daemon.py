"""The process that Spark's Python workers are forked from: `spark.python.daemon.module`.

It has imported what their tasks need: to import it anew takes a worker a second, as long as half a million
events.
"""

import pandas
from pyspark.daemon import manager

from workers.pipeline import event_source, operators, result_writer

# pandas: PyArrow imports it when it is given the first array of NumPy.
IMPORTED = (event_source, operators, result_writer, pandas)

if __name__ == "__main__":
    manager()
