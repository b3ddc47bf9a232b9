"""The pipeline process: `python -m workers.pipeline.runtime.application [--application FILE] [--reset]`.

With `--replica NAME`, the process only runs this replica of every application that the main process runs. It has a
Spark session of its own (`--cores`), and keeps its files in the folder `replicas`.

`common.environment` describes the environment variables that it reads: REDIS_URL, WEIR_DATA (the checkpoint is in its
folder `pipeline`), SPARK_MASTER, WEIR_PIPELINE_…, and OTEL_…. The process keeps only these and those that
`workers.host.environment` names: no key of the console, and no password of the database.

On SIGTERM nothing more is admitted, the running batch ends, and the process exits with 0. It exits with 2 on bad input.
"""

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from common import environment as variables
from common import logs
from queues import keys
from workers.host.environment import PIPELINE, PIPELINE_PREFIXES, go_on_with, select_needed

if __name__ == "__main__":
    # Before anything large is imported, since the process executes itself again without the keys that it was
    # started with.
    go_on_with(select_needed(variables.PROCESS, PIPELINE, PIPELINE_PREFIXES))

import psutil
import redis
from py4j.protocol import Py4JError

from common import own_process
from common.errors import BadInput, WeirError
from common.files import keep_private
from common.own_process import raise_open_file_limit
from queues.control.connection import connect
from workers.coordination.plant_clock import PlantClock, read_clock
from workers.documents.pipeline import PipelineOrder
from workers.pipeline.declaration.declaration import MAX_REPLICAS, read_application
from workers.pipeline.declaration.declared import (
    NO_ORDER,
    OF_FILE,
    Declarations,
    DeclarationText,
    FollowedDeclarations,
    Orders,
)
from workers.pipeline.declaration.replicas import MAIN, ProcessRole, list_replica_names
from workers.pipeline.runtime.hosted import HostedApplication, HostingPlace, SessionExpired
from workers.pipeline.runtime.session import count_local_cores, count_task_slots, start_session
from workers.pipeline.runtime.spark_demand import QUIET_SECONDS, SparkDemand
from workers.pipeline.runtime.spark_session import SparkNeeded, SparkOnDemand
from workers.pipeline.runtime.task_plan import TaskSlots
from workers.pipeline.status.published import RecentLog, ReplicaStatuses, Statuses
from workers.pipeline.tiers.batch_work import describe_error

PROGRAM, RESET = "workers.pipeline.runtime.application", "--reset"
CHILD_SECONDS = 5.0  # for killed children to end
NO_FILE = DeclarationText("", OF_FILE, "")
SHIPPED = Path(__file__).parents[1] / "applications" / "performance.yaml"

log = logging.getLogger("weir.pipeline")


@dataclass(frozen=True)
class Settings:
    """The settings from the environment."""

    control_url: str
    data: Path
    master: str
    trigger_seconds: float
    declaration: Path
    patience_seconds: float
    stuck_seconds: float
    role: ProcessRole = MAIN
    has_long_tasks: bool = False
    starts_spark: str = "on-demand"

    @property
    def spark_reason(self) -> str | None:
        """Return why the process always needs Spark, as a clause; None if it starts Spark on demand."""
        if self.starts_spark == "always":
            return f"{variables.SPARK.name} is always"
        if not self.has_long_tasks:
            return f"{variables.PIPELINE_EXECUTION.name} is micro-batches"
        if not self.role.is_main or self.role.separate:
            return "replicas have processes of their own"
        if not self.master.startswith("local"):
            return f"{variables.SPARK_MASTER.name} names a cluster"
        return None

    @property
    def folder(self) -> Path:
        """Return the folder of the process."""
        return self.data / "replicas" / self.role.replica if self.role.replica else self.data / "pipeline"

    @classmethod
    def load(cls, environment: Mapping[str, str]) -> "Settings":
        """Load the settings. Raises `BadInput` that names the variable."""
        return cls(
            variables.REDIS_URL.get_text(environment) or variables.LOCAL_CONTROL,
            variables.DATA.get_path(environment).resolve(),
            variables.SPARK_MASTER.get_text(environment) or "local[2]",
            variables.PIPELINE_TRIGGER_SECONDS.get_seconds(environment),
            Path(variables.PIPELINE_APPLICATION.get_text(environment) or SHIPPED),
            variables.PIPELINE_PATIENCE_SECONDS.get_seconds(environment),
            variables.PIPELINE_STUCK_SECONDS.get_seconds(environment),
            ProcessRole.build_main(variables.PIPELINE_REPLICA_PROCESSES.get_whole_number(environment=environment)),
            variables.PIPELINE_EXECUTION.get_choice(environment) == "tasks",
            variables.SPARK.get_choice(environment),
        )

    def narrow_to_replica(self, replica: str, cores: int) -> "Settings":
        """Return the settings for the process of a replica. Raises `BadInput` for a name that no replica has."""
        known = list_replica_names(MAX_REPLICAS)
        if replica not in known:
            raise BadInput("--replica", f"must be {known[0]} to {known[-1]}, not {replica[:40]!r}")
        if cores < 1:
            raise BadInput("--cores", f"must be at least 1, not {cores}")
        return replace(self, master=f"local[{cores}]", role=ProcessRole(replica))


class Watchdog:
    """Says when the process hangs and has to end, so that its supervisor restarts it.

    A worker, a query, or a Java process that hangs never fails, and can't be asked to stop either: Spark would wait for
    it. A new process continues from the checkpoint within seconds, exactly. Fed by the main thread in each cycle, and
    checked every second by another thread.
    """

    def __init__(self, limit_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._limit_seconds, self._monotonic = limit_seconds, monotonic
        self._fed_at: float | None = None

    def feed(self) -> None:
        """Record that the main thread is running.

        Nothing is checked before the first call: Spark takes time to start.
        """
        self._fed_at = self._monotonic()

    def explain_required_end(self, stuck_seconds: float) -> str | None:
        """Return why this process has to end, or None.

        stuck_seconds: for how long a component that has all it needs has finished nothing.
        """
        if stuck_seconds > self._limit_seconds:
            return f"no progress for {stuck_seconds:.0f} s although all inputs are available; the process restarts"
        silent_seconds = 0.0 if self._fed_at is None else self._monotonic() - self._fed_at
        if silent_seconds > self._limit_seconds:
            return f"its main thread has not responded for {silent_seconds:.0f} s; the process restarts"
        return None


def end_process() -> None:
    """End the process at once, with all its children: what hangs is not waited for."""
    for process in psutil.Process().children(recursive=True):
        process.kill()
    os._exit(1)


def start_over(arguments: Sequence[str]) -> NoReturn:
    """Continue as a new program in the same process. Its supervisor doesn't notice, and its memory is free again."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        child.kill()
    psutil.wait_procs(children, CHILD_SECONDS)
    kept = [argument for argument in arguments if argument != RESET]
    os.execv(sys.executable, [sys.executable, "-m", PROGRAM, *kept])


class PipelineProcess:
    """One run of the process, with the requested applications."""

    def __init__(self, settings: Settings, file: DeclarationText, control: redis.Redis) -> None:
        self._settings, self._file, self._control = settings, file, control
        self._stopping = threading.Event()
        self._ends_spark = False
        self._session = SparkOnDemand(lambda: start_session("pipeline", settings.master, settings.folder))
        self._demand = SparkDemand()
        clock = PlantClock(lambda: read_clock(control))
        is_main = settings.role.is_main
        self._statuses = (Statuses if is_main else ReplicaStatuses)(control, ahead_seconds=clock.compute_ahead_seconds)
        self._watchdog = Watchdog(settings.stuck_seconds)
        self._declarations = Declarations(control, file) if is_main else FollowedDeclarations(control)
        self._orders, self._log = Orders(control), RecentLog(control)
        if is_main:
            logging.getLogger().addHandler(self._log)
        self._hosted: dict[str, HostedApplication] = {}
        self._refused: dict[str, tuple[DeclarationText, int]] = {}  # with the restarts that were ordered by then
        self._ordered: dict[str, PipelineOrder] = {}

    def stop(self, *_: object) -> None:
        """Request the end of the process. Safe in a signal handler: it only sets a flag."""
        self._stopping.set()

    @property
    def starts_over(self) -> bool:
        """Return whether the process has ended its work only to continue without Spark, as a new program."""
        return self._ends_spark and not self._stopping.is_set()

    def run(self, reset: bool) -> None:
        """Run until a stop is requested, or Spark is to end. Raises `WeirError` for what a restart can't fix."""
        settings = self._settings
        self._statuses.enter_state("starting")
        self._declarations.note_shipped()
        try:
            with Beat(self._statuses, self._watchdog, self._log):
                if (reason := settings.spark_reason) is not None:
                    self._session.start(reason)
                place = HostingPlace(
                    self._session,
                    self._control,
                    settings.control_url,
                    settings.folder,
                    settings.declaration.parent,
                    settings.trigger_seconds,
                    settings.patience_seconds,
                    settings.role,
                    TaskSlots(self._count_slots) if settings.has_long_tasks else None,
                )
                try:
                    self._host_applications(place, reset)
                finally:
                    self._session.stop()
        except WeirError as error:
            self._statuses.enter_state("failed", str(error))
            raise
        except Py4JError as error:
            told = f"the Spark process is not responding ({describe_error(error)})"
            self._statuses.enter_state("failed", told)
            raise WeirError(f"{told}. Restart the pipeline.") from error

    def _host_applications(self, place: HostingPlace, reset: bool) -> None:
        # This process takes longest to start, so it starts first, and waits for the first topology of a new plant.
        while not self._control.exists(keys.TOPOLOGY):
            self._watchdog.feed()
            if self._stopping.wait(0.2):
                return
        try:
            self._follow(place, reset)
            self._observe_demand()
            while not self._stopping.wait(1.0):
                self._statuses.cores = self._count_cores()
                self._follow(place, reset=False)
                self._observe_demand()
                if self._can_end_spark():
                    log.info("The load has been low for %.0f minutes. Spark ends.", QUIET_SECONDS / 60)
                    self._ends_spark = True
                    return
        finally:
            if self._stopping.is_set() or self._ends_spark:
                self._statuses.enter_state("stopping")
            for hosted in self._hosted.values():
                hosted.leave()

    def _observe_demand(self) -> None:
        """Start Spark if the load requires it."""
        needed = self._demand.observe({name: hosted.measure_load() for name, hosted in self._hosted.items()})
        if needed is not None:
            self._session.request(needed)

    def _count_cores(self) -> int | None:
        """Return the number of cores that Spark has, or would have. On a cluster, executors come and go."""
        spark = self._session.spark
        return count_local_cores(self._settings.master) if spark is None else spark.sparkContext.defaultParallelism

    def _count_slots(self) -> int:
        spark = self._session.spark
        return 0 if spark is None else count_task_slots(spark)

    def _can_end_spark(self) -> bool:
        """Return whether all applications can run without Spark again, after a long time of low load."""
        if self._session.spark is None or self._settings.spark_reason is not None:
            return False
        has_quiet_load = self._demand.quiet_seconds >= QUIET_SECONDS
        return has_quiet_load and all(hosted.spark_reason is None for hosted in self._hosted.values())

    def _follow(self, place: HostingPlace, reset: bool) -> None:
        """Run what is requested, and stop what is no longer requested."""
        self._watchdog.feed()
        try:
            wanted, self._ordered = self._declarations.load_wanted(), self._orders.read()
            self._statuses.expect(wanted)
        except (redis.ConnectionError, redis.TimeoutError):
            wanted = {name: hosted.declared for name, hosted in self._hosted.items()}
        for name in set(self._hosted) - set(wanted):
            self._hosted.pop(name).leave()
            self._statuses.forget(name)
            self._declarations.forget(name)
        # The application of the process's own file first: if two applications read the same queue, it is the
        # one that runs. The others also wait for it while it waits for Spark.
        awaits_spark = False
        for name, declared in sorted(wanted.items(), key=lambda item: (item[0] != self._file.name, item[0])):
            order = self._ordered.get(name, NO_ORDER)
            if self._refused.get(name) == (declared, order.restart) or (awaits_spark and name not in self._hosted):
                continue
            try:
                if name not in self._hosted:
                    self._hosted[name] = HostedApplication(
                        place, declared, self._declarations, self._statuses, reset, order, self._hosted
                    )
                self._hosted[name].step(declared, order)
            except SparkNeeded as need:
                awaits_spark = True
                self._session.request(str(need), is_essential=True)
            except SessionExpired as error:
                # The process ends as it is, so that its supervisor starts another. Stopping what is broken may take
                # forever, and its current work is repeated from the checkpoint.
                log.error("%s", error)
                self._statuses.write()
                self._log.write()
                end_process()
            except WeirError as error:
                self._refuse(declared, error)

    def _refuse(self, declared: DeclarationText, error: WeirError) -> None:
        """Reject an application that can't run.

        The process's own application ends the process. Another leaves the others running.
        """
        if declared.name == self._file.name:
            raise error
        if isinstance(error, BadInput):
            self._refused[declared.name] = declared, self._ordered.get(declared.name, NO_ORDER).restart
        if (hosted := self._hosted.pop(declared.name, None)) is not None:
            hosted.leave()
        log.error("%s can't run: %s", declared.name, error)
        self._declarations.note_at_work(declared, str(error))


class Beat:
    """Writes the status every second, whatever the main thread waits for, and ends a process that hangs."""

    def __init__(self, statuses: Statuses, watchdog: Watchdog, recent: RecentLog) -> None:
        self._statuses, self._watchdog, self._log = statuses, watchdog, recent
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="status", daemon=True)

    def __enter__(self) -> "Beat":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(1.0):
            self._statuses.write()
            self._log.write()
            own_process.touch()
            if (why := self._watchdog.explain_required_end(self._statuses.stuck_seconds)) is not None:
                log.error("%s", why)
                self._log.write()
                self._statuses.enter_state("failed", why)
                end_process()


def _read_declaration(path: Path, control: redis.Redis) -> DeclarationText:
    """Read the process's own declaration. An invalid one is also shown as the pipeline's status."""
    try:
        name = read_application(path).name
        return DeclarationText(name, OF_FILE, path.read_text(encoding="utf-8-sig"))
    except BadInput as error:
        Statuses(control).enter_state("failed", str(error))
        raise


def main(arguments: list[str]) -> int:
    # Without abbreviations, a new program knows which argument is --reset.
    parser = argparse.ArgumentParser(prog=f"python -m {PROGRAM}", allow_abbrev=False)
    parser.add_argument(
        "--application", type=Path, help="declaration (YAML) to run instead of WEIR_PIPELINE_APPLICATION"
    )
    parser.add_argument(RESET, action="store_true", help="start over at the oldest events still waiting")
    parser.add_argument("--replica", help="run only this replica of every application, such as iap1")
    parser.add_argument("--cores", type=int, default=1, help="with --replica: cores of its Spark session (default: 1)")
    given = parser.parse_args(arguments)
    if given.reset and given.replica:
        parser.error("--reset is an option of the main process; it has no effect on a replica")
    keep_private()
    raise_open_file_limit()
    try:
        logs.configure_logging()
        variables.OTLP_ENDPOINT.get_address()
        settings = Settings.load(variables.PROCESS)
        with connect(settings.control_url, socket_timeout=10.0) as control:
            settings = replace(settings, declaration=given.application or settings.declaration)
            if given.replica:
                settings, file = settings.narrow_to_replica(given.replica, given.cores), NO_FILE
            else:
                file = _read_declaration(settings.declaration, control)
            process = PipelineProcess(settings, file, control)
            signal.signal(signal.SIGTERM, process.stop)
            signal.signal(signal.SIGINT, process.stop)
            own_process.watch()
            process.run(given.reset)
        if process.starts_over:
            start_over(arguments)
    except BadInput as error:
        log.error("%s", error)
        return 2
    except (WeirError, redis.RedisError) as error:
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
