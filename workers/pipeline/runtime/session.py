"""The Spark session of the pipeline, kept small: a plant that is nearly idle should not cost half a core.

Its streaming sources answer Spark in this process. By default Spark starts a process for each of them, which takes
65 MB and a second or more to import PySpark, and does little but wait. What Spark starts (`worker_start`) hands its
call over here, by a socket in a folder of this user alone, and ends. A thread answers each source until Spark closes
the connection.
"""

import logging
import os
import re
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.streaming import python_streaming_source_runner as runner

from common import environment as variables
from workers.host.environment import select_needed, use_narrow_environment
from workers.host.spark import (
    NO_COUNTERS,
    admit_this_user_only,
    archive_options,
    build_driver_settings,
    build_java_options,
    build_private_settings,
    build_spark_environment,
)
from workers.pipeline.runtime.long_tasks import EpochSource
from workers.pipeline.runtime.source import AssignmentSource, ResultSource
from workers.pipeline.runtime.worker_start import (
    SparkCall,
    build_socket_settings,
    call_back,
    create_python_launcher,
    open_calls_address,
)
from workers.pipeline.tiers.event_source import EventSource

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView

MAX_BYTES = 4_096
HAND_OVER_SECONDS = 5.0
LONG_TASK_SLOTS = 64
_LOCAL = re.compile(r"local\[(\*|\d+)\]\Z")


def answer_sources(folder: Path) -> None:
    """Answer the sources whose calls arrive in that folder, until this process ends."""
    with open_calls_address(folder) as address:
        Path(address).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(address)
    listener.listen()

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            # After any error the next call is answered; a worker whose call is not taken calls Spark itself.
            with suppress(OSError, ValueError, KeyError, TypeError), connection:
                connection.settimeout(HAND_OVER_SECONDS)
                call = SparkCall.from_text(connection.recv(MAX_BYTES))
                threading.Thread(target=_answer_source, args=(call,), daemon=True, name="source").start()
                connection.sendall(b"ok")

    threading.Thread(target=accept, daemon=True, name="sources").start()


def _answer_source(call: SparkCall) -> None:
    # Spark closes the connection when its query ends; a failure before that has been sent to it.
    with suppress(OSError, SystemExit), call_back(call) as stream:
        runner.main(stream, stream)


_COMMON_JAVA_OPTIONS = (
    "-XX:+UseSerialGC",
    # A start runs much code a few thousand times. A tenfold threshold for the costly compiler saves a third
    # of the start's CPU time; the code that a busy pipeline runs all the time exceeds it within a minute.
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_JAVA_OPTIONS = (
    *_COMMON_JAVA_OPTIONS,
    # The objects of a batch are garbage when it ends, and must not be moved to the old generation, which is kept small.
    "-Xmn128m",
    # By default Java starts with a share of the host's memory, and fills that before it collects.
    "-Xms224m",
    "-XX:ReservedCodeCacheSize=160m",
    "-XX:MinHeapFreeRatio=20",
    "-XX:MaxHeapFreeRatio=40",
    # Memory freed outside the heap, mostly by compilers, goes back to the host within a minute.
    "-XX:TrimNativeHeapInterval=60000",
    # Out of memory, some thread of it dies, and the others wait for that one forever.
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
)
# A worker needs the same amount of memory for each task. If it were returned in between, every page would be
# cleared again, which takes longer than the matching.
_RETAINED_BYTES = 256 * 2**20
_WORKER_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(_RETAINED_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(_RETAINED_BYTES),
}
# No catalog but the session's own, no table that is a path, no variables in a text.
CLOSED = {
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
}
_REFLECTION = ("reflect", "java_method", "try_reflect")
_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def start_session(
    name: str, master: str, folder: Path, heap: str = "512m", java: tuple[str, ...] | None = None
) -> SparkSession:
    """Start a session with the pipeline's sources registered.

    `folder` is for Spark's scratch files. `java`: further options of its Java, in place of those that load Spark's
    classes from the archive.
    """
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs every connection
    variables.PROCESS.update(build_spark_environment(folder / "java"))
    sockets: dict[str, str] = {}
    if master.startswith("local"):
        python = create_python_launcher(folder / "python")
        variables.PROCESS.update({"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python})
        answer_sources(folder / "python")
        sockets = build_socket_settings(folder)
    own_slots, cores = add_task_slots(master)
    builder = SparkSession.builder.master(own_slots).appName(f"weir {name}")
    more = archive_options(variables.PROCESS["JAVA_HOME"]) if java is None else java
    settings = {
        **_build_settings(folder, heap, more),
        **build_driver_settings(master),
        **build_private_settings(master, folder),
        **build_failure_detection_settings(master),
        **sockets,
        **cores,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    with use_narrow_environment(select_needed(variables.PROCESS, {variables.NODE_LOGIN.name})):
        spark = builder.getOrCreate()
    admit_this_user_only(spark.sparkContext._gateway)
    spark.sparkContext.setLogLevel("ERROR")
    forget_reflection(spark)
    for source in (AssignmentSource, EpochSource, EventSource, ResultSource):
        spark.dataSource.register(source)
    return spark


def add_task_slots(master: str) -> tuple[str, dict[str, str]]:
    """Return a local master with slots for long-running tasks, and the settings that keep its parallelism.

    A long-running task needs its own slot, but uses no core most of the time. The slots of a cluster are not changed.
    """
    cores = count_local_cores(master)
    if cores is None:
        return master, {}
    return f"local[{cores + LONG_TASK_SLOTS}]", {"spark.default.parallelism": str(cores)}


def count_local_cores(master: str) -> int | None:
    """Return the number of cores of a local master; None for a cluster."""
    found = _LOCAL.match(master)
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1])


def build_failure_detection_settings(master: str) -> dict[str, str]:
    """Return the settings with which a cluster replaces an executor that stops responding.

    Its tasks then start on other executors. If the executor was only slow, its batches are repeated, so a short timeout
    takes time but loses no event. Spark detects a closed connection immediately. The Java options reduce the CPU time
    of an executor's start, so that its first heartbeat is also in time.
    """
    if master.startswith("local"):
        return {}
    return {
        "spark.executor.extraJavaOptions": " ".join((*_COMMON_JAVA_OPTIONS, NO_COUNTERS)),
        "spark.executor.heartbeatInterval": "500ms",
        "spark.storage.blockManagerHeartbeatTimeoutMs": "3000ms",
        "spark.network.timeoutInterval": "250ms",
    }


def count_task_slots(spark: SparkSession) -> int:
    """Return the number of slots for long-running tasks. A cluster has a slot for each core of its current executors.

    Unlike `defaultParallelism`, the number can be 0 or 1.
    """
    if str(spark.sparkContext.master).startswith("local["):
        return LONG_TASK_SLOTS
    context = spark.sparkContext._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


def forget_reflection(spark: SparkSession) -> None:
    """Remove the functions by which an expression could call a Java class.

    No expression is read as text at all (`rule_language`); this protects against later additions.
    """
    registry = spark._jsparkSession.sessionState().functionRegistry()
    java: JVMView = spark._jvm
    builtin, system = java.scala.Option.apply("builtin"), java.scala.Option.apply("system")
    for name in _REFLECTION:
        registry.dropFunction(java.org.apache.spark.sql.catalyst.FunctionIdentifier(name, builtin, system))


def _build_settings(folder: Path, heap: str, java: tuple[str, ...]) -> dict[str, str]:
    return {
        "spark.driver.memory": heap,
        "spark.driver.extraJavaOptions": " ".join((*_JAVA_OPTIONS, *java, build_java_options(folder))),
        "spark.executorEnv.PYTHONPATH": variables.PROCESS[variables.PYTHONPATH],
        **{f"spark.executorEnv.{name}": value for name, value in _WORKER_ENVIRONMENT.items()},
        # A page of a broadcast table, of which each stream keeps two; the default is 16 MB.
        "spark.buffer.pageSize": "2m",
        # Otherwise tasks of one kind have a different environment, and so a daemon of their own.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Only Spark's own pages would show these; by default a thousand batches stay in memory.
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "5",
        **CLOSED,
        "spark.sql.session.timeZone": "UTC",
        # A value that can't be cast is null and does not end the batch.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        # With any other limit in bytes, the size is added up again after each row.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.streaming.numRecentProgressUpdates": "2",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.stopTimeout": "10000",
        # On a busy or suspended host, a worker or a heartbeat is late. Waiting loses nothing, and the
        # watchdog handles what really hangs.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.network.timeout": "600s",
        "spark.executor.heartbeatInterval": "30s",
        "spark.python.daemon.module": "workers.pipeline.runtime.worker_daemon",
        "spark.python.worker.reuse": "true",
        "spark.cleaner.periodicGC.interval": "10min",
    }
