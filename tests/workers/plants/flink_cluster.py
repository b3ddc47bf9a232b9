"""A real Flink session cluster on this machine, from the PyPI package `apache-flink`, and a job on it.

The package's pinned versions conflict with the project's, so it is installed in an environment of its own, in the cache
or at WEIR_TEST_FLINK. Only the dependencies of a plain SQL job are installed with it.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import yaml

from queues.nodes.server import free_port
from tests.waiting import until
from workers.host import spark

VERSION = "2.3.0"
BESIDE = ("py4j==0.10.9.7", "cloudpickle", "python-dateutil", "pytz", "ruamel.yaml", "typing_extensions")
INSTALL_SECONDS, START_SECONDS = 240, 60
SETTINGS = {
    "jobmanager.scheduler": "adaptive",
    "jobmanager.memory.process.size": "900m",
    "taskmanager.memory.process.size": "1200m",
    "taskmanager.numberOfTaskSlots": 2,
    # Rescaling has no delay here, because resources don't come and go.
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "1 s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "1 s",
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "1 s",
    "web.adaptive-scheduler.rescale-history.size": 10,
    "metrics.fetcher.update-interval": 1000,
    "execution.checkpointing.interval": "2 s",
    # Each operator of the job is a vertex that can be scaled.
    "pipeline.operator-chaining.enabled": False,
}
JOB = """
import sys
from pyflink.table import EnvironmentSettings, TableEnvironment

table = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
table.get_config().set("pipeline.name", "hashes")
table.execute_sql(
    "CREATE TABLE came (k STRING) WITH ('connector' = 'filesystem', 'format' = 'csv',"
    f" 'path' = '{sys.argv[1]}', 'source.monitor-interval' = '1 s')"
)
table.execute_sql("CREATE TABLE gone (h STRING) WITH ('connector' = 'blackhole')")
table.execute_sql("INSERT INTO gone SELECT SHA512(REPEAT(k, 4000)) FROM came")
"""


class NoFlinkError(Exception):
    """Flink is not available here; the message says why."""


def environment() -> Path:
    """Return the environment with Flink, and make it if it does not exist. Raise `NoFlinkError`."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "weir"
    found = Path(os.environ.get("WEIR_TEST_FLINK", cache / f"flink-{VERSION}"))
    if not home(found).exists():
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
        if uv is None:
            raise NoFlinkError("uv is missing, which would install apache-flink")
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        _install([uv, "venv", "-q", "--clear", "-p", version, str(found)])
        into = [uv, "pip", "install", "-q", "--python", str(found / "bin/python")]
        _install([*into, *BESIDE])
        _install([*into, "--no-deps", f"apache-flink=={VERSION}", f"apache-flink-libraries=={VERSION}"])
    return found


def home(found: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return found / "lib" / version / "site-packages" / "pyflink"


def _install(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_SECONDS)
    except (subprocess.SubprocessError, OSError) as error:
        raise NoFlinkError(f"apache-flink can't be installed: {error}") from error


class FlinkCluster:
    """A job manager and a task manager with two slots; `url` is that of the REST API."""

    def __init__(self, found: Path, folder: Path) -> None:
        self.folder, self._found, self._home = folder, found, home(found)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._environment = {
            **os.environ,
            "FLINK_HOME": str(self._home),
            **{f"FLINK_{name.upper()}_DIR": str(folder / name) for name in ("conf", "log", "pid")},
            "JAVA_HOME": str(spark.find_java_home(os.environ, folder / "java")),
            "PATH": f"{found / 'bin'}:{os.environ['PATH']}",
        }

    def start(self) -> None:
        for name in ("conf", "log", "pid"):
            (self.folder / name).mkdir(parents=True)
        for file in (self._home / "conf").iterdir():
            shutil.copy(file, self.folder / "conf" / file.name)
        settings = yaml.safe_load((self._home / "conf/config.yaml").read_text())
        flat = dict(_flat(settings)) | SETTINGS
        flat |= {"rest.port": self.port, "rest.bind-port": self.port, "jobmanager.rpc.port": free_port()}
        (self.folder / "conf/config.yaml").write_text(yaml.safe_dump(flat))
        self._run("start-cluster.sh")
        until(self._has_slots, START_SECONDS, 0.5)

    def submit(self, text: str, *arguments: str) -> None:
        """Submit a job of Python's Table API, which keeps running."""
        job = self.folder / "job.py"
        job.write_text(text)
        python = str(self._found / "bin/python")
        self._run("flink", "run", "-d", "-pyclientexec", python, "-py", str(job), *arguments)

    def stop(self) -> None:
        """Stop at once: nothing has to be kept, and on a busy host an orderly stop takes minutes."""
        for file in (self.folder / "pid").glob("*.pid"):
            for pid in file.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)

    def _has_slots(self) -> bool:
        try:
            return httpx.get(f"{self.url}/overview").json()["slots-total"] == 2
        except httpx.TransportError:
            return False

    def _run(self, script: str, *arguments: str) -> None:
        command = [str(self._home / "bin" / script), *arguments]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=90, cwd=self.folder
        )
        assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]


@contextmanager
def cluster(found: Path, folder: Path) -> Iterator[FlinkCluster]:
    made = FlinkCluster(found, folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()


class Load:
    """Rows that arrive in a folder at `per_second`, in small files, until it is closed."""

    def __init__(self, folder: Path, per_second: float) -> None:
        folder.mkdir(parents=True)
        self.per_second, self._folder = per_second, folder
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _write(self) -> None:
        number, owed, at = 0, 0.0, time.monotonic()
        while not self._ended.wait(0.25):
            now = time.monotonic()
            owed, at = owed + self.per_second * (now - at), now
            rows, number = int(owed), number + 1
            owed -= rows
            hidden = self._folder / f".{number}.csv"
            hidden.write_text("".join(f"row-{number}-{row}\n" for row in range(rows)))
            hidden.rename(self._folder / f"{number}.csv")


def _flat(document: dict, before: str = "") -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value
