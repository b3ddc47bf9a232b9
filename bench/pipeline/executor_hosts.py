"""Hosts of Spark executors: network namespaces on a bridge, each with a limited share of the processor.

The servers, Spark's master, and the driver run on this host, which has the first address of the bridge. All hosts share
one processor. Each host therefore represents a slower machine, on which only the executor lacks CPU time.
"""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.faults.namespaces import end_leftovers, kill_processes
from bench.plant.running_plant import clean_environment, start_program

NETWORK = "10.78.0"
DESK = f"{NETWORK}.1"  # the address of this host on the bridge
MASTER_PORT, PAGE_PORT = 7077, 8080
START_SECONDS, END_SECONDS = 120.0, 30.0
PERIOD_US = 20_000  # a short period, so that the limit never pauses a process for long
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
_MODULE = (sys.executable, "-m", "workers.pipeline.runtime.cluster")


def explain_missing() -> str:
    """Return why this host can't emulate several hosts; "" if it can."""
    if os.geteuid() != 0 or subprocess.run(["ip", "netns", "list"], capture_output=True, check=False).returncode:
        return "Network namespaces need root privileges and the command ip; install iproute2."
    if not (CPU_GROUPS / "cpu.cfs_quota_us").exists():
        return f"CPU limits need the cgroup v1 controller cpu at {CPU_GROUPS}; mount it."
    return ""


class CpuLimit:
    """A control group whose processes share a limited part of the CPU time. Its parent is the group of this process."""

    def __init__(self, name: str) -> None:
        own = re.search(r"^\d+:(?:\w+,)*cpu(?:,\w+)*:/(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
        self._folder = CPU_GROUPS / (own[1] if own else "") / name

    def create(self) -> None:
        """Create the group, and remove the groups of processes that were killed."""
        for left in self._folder.parent.glob("w*-e*"):
            maker = re.fullmatch(r"w(\d+)-\w+", left.name)
            if maker is not None and not Path("/proc", maker[1]).exists():
                left.rmdir()
        self._folder.mkdir()

    def limit(self, cores: float) -> None:
        (self._folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (self._folder / "cpu.cfs_quota_us").write_text(str(round(cores * PERIOD_US)))

    def prefix(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs the command in this group."""
        return ["sh", "-c", f'echo $$ > {self._folder}/cgroup.procs; exec "$@"', "sh", *command]

    def remove(self) -> None:
        """Remove the group after its killed processes have ended."""
        with suppress(FileNotFoundError):
            await_true(lambda: not (self._folder / "cgroup.procs").read_text(), END_SECONDS, "the processes end")
            self._folder.rmdir()


class ExecutorHosts:
    """A standalone Spark cluster with a worker in each namespace. slots: Spark's cores of each worker."""

    def __init__(self, names: Sequence[str], folder: Path, slots: int) -> None:
        self.names = tuple(names)
        self._folder, self._slots = folder, slots
        self._tag = f"w{os.getpid()}"
        self._limits = {name: CpuLimit(self._space(name)) for name in names}
        self._processes: list[subprocess.Popen[bytes]] = []
        self.secret = secrets.token_hex(16)

    @property
    def master(self) -> str:
        """Return the URL of Spark's master."""
        return f"spark://{DESK}:{MASTER_PORT}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a driver on this host."""
        return {
            "SPARK_MASTER": self.master,
            "SPARK_DRIVER_HOST": DESK,
            "SPARK_LOCAL_IP": DESK,
            "WEIR_SPARK_SECRET": self.secret,
        }

    def begin(self) -> None:
        """Create the network, and start the master."""
        bridge = f"{self._tag}b"
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{DESK}/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        for name in self.names:
            self._limits[name].create()
            space, port = self._space(name), self._port(name)
            _run("ip", "netns", "add", space)
            _run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
            _run("ip", "link", "set", port, "master", bridge, "up")
            for words in (("link", "set", "lo", "up"), ("link", "set", "eth0", "up")):
                _run("ip", "-n", space, *words)
            _run("ip", "-n", space, "addr", "add", f"{self.get_address(name)}/24", "dev", "eth0")
        ports = ("--port", str(MASTER_PORT), "--webui-port", str(PAGE_PORT))
        self._start("master", [*_MODULE, "master", "--host", DESK, *ports], DESK)
        await_true(lambda: self.count_workers() == 0, START_SECONDS, "the master starts")

    def start(self, name: str) -> None:
        """Start the worker of a host, and wait until it has joined the master."""
        joined = (self.count_workers() or 0) + 1
        place = ("--host", self.get_address(name), "--cores", str(self._slots), "--memory", "1200m")
        worker = [*_MODULE, "worker", self.master, *place, "--webui-port", "8081"]
        inside = ["ip", "netns", "exec", self._space(name), *worker]
        self._start(name, self._limits[name].prefix(inside), self.get_address(name))
        await_true(lambda: self.count_workers() == joined, START_SECONDS, f"{name} joins the master")

    def _start(self, name: str, command: list[str], address: str) -> None:
        environment = {**clean_environment(), **self.environment, "SPARK_LOCAL_IP": address}
        environment |= {"WEIR_DATA": str(self._folder / name), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._processes.append(start_program(command, environment, self._folder / f"{name}.log"))

    def count_workers(self) -> int | None:
        """Return how many workers the master has; None if its page doesn't respond."""
        try:
            with urllib.request.urlopen(f"http://{DESK}:{PAGE_PORT}/json/", timeout=2) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, ValueError):
            return None

    def limit(self, cores: float) -> None:
        """Limit each host to this share of one core. Hosts start faster without a limit."""
        for limit in self._limits.values():
            limit.limit(cores)

    def kill_executor(self, name: str) -> None:
        """Kill the executor and its Python workers. Spark's worker stays, and starts another executor."""
        kill_processes(self._space(name), spared="deploy.worker.Worker")

    def kill_host(self, name: str) -> None:
        """Kill all processes of a host."""
        kill_processes(self._space(name))

    def set_link(self, name: str, up: bool) -> None:
        """Connect a host to the network, or disconnect it: its packets are then lost without an error."""
        _run("ip", "link", "set", self._port(name), "up" if up else "down")

    def get_address(self, name: str) -> str:
        return f"{NETWORK}.{11 + self.names.index(name)}"

    def _space(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def _port(self, name: str) -> str:
        return f"{self._tag}v{self.names.index(name)}"

    def close(self) -> None:
        """End all processes, and remove the network and the limits. Safe at any point of the start."""
        for name in self.names:
            self.kill_host(name)
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", self._space(name)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", f"{self._tag}b"], check=False, capture_output=True)
        for limit in self._limits.values():
            limit.remove()


def await_true(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Wait until a condition holds, and return the seconds that it took. Raises TimeoutError with `what`."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - began


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def executor_hosts(names: Sequence[str], folder: Path, slots: int = 1) -> Iterator[ExecutorHosts]:
    """Yield hosts without workers, and a master. Everything is removed at the end."""
    end_leftovers()
    hosts = ExecutorHosts(names, folder, slots)
    try:
        hosts.begin()
        yield hosts
    finally:
        hosts.close()
