"""The Spark session of batch jobs: all cores, the faster compiler, and memory for sorting."""

import logging
from pathlib import Path

from pyspark.sql import SparkSession

from common import environment as variables
from workers.host.environment import select_needed, use_narrow_environment
from workers.host.spark import (
    archive_options,
    build_driver_settings,
    build_java_options,
    build_private_settings,
    build_spark_environment,
)

HEAP = "2g"
LOCAL_MASTER = "local[*]"
PARTITIONS = 8
_JAVA_OPTIONS = "-XX:+UseParallelGC -Djava.net.preferIPv4Stack=true"
_SETTINGS = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.session.timeZone": "UTC",
    # Partitions small enough to be sorted in memory; small ones are merged.
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.adaptive.enabled": "true",
    # The archive has many small files: opening one is cheap here, so many are read at a time.
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.files.maxPartitionBytes": "64m",
    # A corrupt file is reported (workers.history.event_archive) and never skipped silently.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.task.maxFailures": "1",
}


def start_session(master: str, folder: Path, heap: str = HEAP) -> SparkSession:
    """Start a session on `master`; `folder` is for Spark's scratch files."""
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs every connection
    variables.PROCESS.update(build_spark_environment(folder / "java"))
    kept = archive_options(variables.PROCESS["JAVA_HOME"])
    builder = SparkSession.builder.master(master).appName("weir batch jobs")
    local = {
        "spark.driver.memory": heap,
        "spark.driver.extraJavaOptions": " ".join((_JAVA_OPTIONS, *kept, build_java_options(folder))),
        "spark.executorEnv.PYTHONPATH": variables.PROCESS[variables.PYTHONPATH],
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    for key, value in {
        **_SETTINGS,
        **local,
        **build_driver_settings(master),
        **build_private_settings(master, folder),
    }.items():
        builder = builder.config(key, value)
    with use_narrow_environment(select_needed(variables.PROCESS)):
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
