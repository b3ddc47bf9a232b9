"""A standalone Spark cluster from the installed package: the same version on master, workers, and driver.

    python -m workers.pipeline.runtime.cluster master --host 0.0.0.0 --port 7077
    python -m workers.pipeline.runtime.cluster worker spark://spark-master:7077 --cores 2

This process becomes Spark's own (exec), so signals and exit codes are Spark's. Further arguments are those of Spark's
Master and Worker. Master, workers, and drivers authenticate one another by WEIR_SPARK_SECRET (32 or more characters,
the same for all).
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pyspark

from common import environment as variables
from common.errors import BadInput
from common.files import keep_private
from workers.host.environment import select_needed
from workers.host.spark import build_cluster_environment, build_java_options, build_spark_environment

# A worker keeps a folder with the output of the executors for each application it has had; by default forever.
BOUNDED = {
    "spark.worker.cleanup.enabled": "true",
    "spark.worker.cleanup.interval": "1800",
    "spark.worker.cleanup.appDataTtl": str(3 * 86_400),
    "spark.executor.logs.rolling.strategy": "size",
    "spark.executor.logs.rolling.maxSize": str(5 * 2**20),
    "spark.executor.logs.rolling.maxRetainedFiles": "3",
}
CLASSES = {"master": "org.apache.spark.deploy.master.Master", "worker": "org.apache.spark.deploy.worker.Worker"}


def build_command(arguments: Sequence[str]) -> list[str]:
    """Return Spark's command line for a role and its arguments. Raises `BadInput`."""
    role = arguments[0] if arguments else ""
    if role not in CLASSES:
        raise BadInput("role", f"must be {' or '.join(CLASSES)}, not {role!r}")
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    return [str(spark_class), CLASSES[role], *arguments[1:]]


def build_environment(data: Path) -> dict[str, str]:
    """Return the environment: Java, this Python, a folder for workers, and the cluster's secret. Raises `BadInput`."""
    home = str(Path(pyspark.__file__).parent)
    work = {"SPARK_HOME": home, "SPARK_WORKER_DIR": str(data / "spark" / "work")}
    secret = build_cluster_environment(variables.PROCESS, data / "spark" / "conf")
    environment = {
        **select_needed(variables.PROCESS),
        **build_spark_environment(data / "pipeline" / "java"),
        **work,
        **secret,
    }
    environment["SPARK_DAEMON_JAVA_OPTS"] = build_java_options(data / "spark")
    # The user's options come last: if an option is set twice, Java takes the last one.
    own = environment.get("SPARK_WORKER_OPTS", "")
    bounds = (f"-D{name}={value}" for name, value in BOUNDED.items())
    environment["SPARK_WORKER_OPTS"] = " ".join([*bounds, own]).rstrip()
    # Spark reads it from its file; each executor would get a copy of the environment.
    environment.pop(variables.SPARK_SECRET.name, None)
    # The executors' tasks read and write blocks; they get nothing else of the plant.
    if login := variables.NODE_LOGIN.get_text():
        environment[variables.NODE_LOGIN.name] = login
    return environment


def main(arguments: Sequence[str]) -> NoReturn:
    keep_private()
    data = variables.DATA.get_path().resolve()
    try:
        line, given = build_command(arguments), build_environment(data)
    except BadInput as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from None
    os.execve(line[0], line, given)


if __name__ == "__main__":
    main(sys.argv[1:])
