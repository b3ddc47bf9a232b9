"""Hosts as network namespaces on a bridge, each with a clock of its own; links between them can be cut one way.

A link is cut by the sender's neighbor table: packets for the other host go to a hardware address that nobody has. They
vanish without an error, as in a partition. This process has the first address of the bridge, and no fault reaches it.
"""

import ctypes
import multiprocessing
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.faults.namespaces import end_leftovers, kill_processes
from bench.faults.preloaded import CLOCK, write_number

NOBODY = "02:00:00:00:ff:ff"
CLONE_NEWNET = 0x40000000
END_SECONDS = 10.0
_fork = multiprocessing.get_context("fork")


class Hosts:
    """The hosts by name. lane: one of 0 to 99; processes on one machine need different ones."""

    def __init__(self, names: Sequence[str], lane: int, folder: Path) -> None:
        self.names, self._folder = tuple(names), folder
        self._network = f"10.{100 + lane}.{os.getpid() % 250}"
        self._tag = f"w{os.getpid()}"

    def get_address(self, name: str) -> str:
        return f"{self._network}.{self.names.index(name) + 2}"

    def begin(self) -> None:
        """Create the hosts. Each knows the hardware addresses of all others."""
        end_leftovers()
        bridge = f"{self._tag}b"
        lines = [f"link add {bridge} type bridge", f"addr add {self._network}.1/24 dev {bridge}"]
        lines += [f"link set {bridge} up"]
        for name in self.names:
            port, space = f"{self._tag}-{self.names.index(name)}", self.get_space(name)
            _run("ip", "netns", "add", space)
            lines.append(f"link add {port} type veth peer name eth0 address {self._get_hardware(name)} netns {space}")
            lines.append(f"link set {port} master {bridge} up")
        _run_batch([], lines)
        for name in self.names:
            address = f"addr add {self.get_address(name)}/24 dev eth0"
            links = [self._point(other, self._get_hardware(other)) for other in self.names if other != name]
            _run_batch(["-n", self.get_space(name)], ["link set lo up", address, "link set eth0 up", *links])
            self.set_clock(name, 0)

    def end(self) -> None:
        for name in self.names:
            kill_processes(self.get_space(name))
            subprocess.run(["ip", "netns", "del", self.get_space(name)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", f"{self._tag}b"], check=False, capture_output=True)

    def get_space(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def cut(self, source: str, targets: Sequence[str]) -> None:
        """Lose all packets from a host to others."""
        _run_batch(["-n", self.get_space(source)], [self._point(target, NOBODY) for target in targets])

    def mend(self, source: str, targets: Sequence[str]) -> None:
        """Deliver packets from a host to others again."""
        lines = [self._point(target, self._get_hardware(target)) for target in targets]
        _run_batch(["-n", self.get_space(source)], lines)

    def _point(self, target: str, hardware: str) -> str:
        return f"neigh replace {self.get_address(target)} lladdr {hardware} dev eth0 nud permanent"

    def _get_hardware(self, name: str) -> str:
        return f"02:00:00:00:00:{self.names.index(name) + 2:02x}"

    def get_clock_file(self, name: str) -> Path:
        return self._folder / f"{name}.clock"

    def set_clock(self, name: str, seconds: int) -> None:
        """Step the clock of a host: it is off by so many seconds."""
        write_number(self.get_clock_file(name), seconds)


class HostProcess:
    """A function in a forked process on a host, with the host's network and clock."""

    def __init__(self, hosts: Hosts, host: str, run: Callable[[], None]) -> None:
        self._process = _fork.Process(target=_run_on_host, args=(hosts, host, run), daemon=True)
        self._process.start()

    def kill(self) -> None:
        self._process.kill()
        self._process.join(END_SECONDS)
        self._process.close()

    def pause(self) -> None:
        os.kill(self._get_pid(), signal.SIGSTOP)

    def resume(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._get_pid(), signal.SIGCONT)

    def _get_pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid


def _run_on_host(hosts: Hosts, host: str, run: Callable[[], None]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/run/netns", hosts.get_space(host)).open("rb") as space:
        if libc.setns(space.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    if os.environ.get("LD_PRELOAD", "").endswith(f"{CLOCK.name}.so"):
        libc.follow_clock(os.fsencode(hosts.get_clock_file(host)))
    run()


@contextmanager
def open_hosts(names: Sequence[str], lane: int, folder: Path) -> Iterator[Hosts]:
    """Create hosts, and remove them at the end with their processes."""
    hosts = Hosts(names, lane, folder)
    try:
        hosts.begin()
        yield hosts
    finally:
        hosts.end()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _run_batch(options: Sequence[str], lines: Sequence[str]) -> None:
    command = ["ip", *options, "-batch", "-"]
    subprocess.run(command, input="\n".join(lines) + "\n", text=True, check=True, capture_output=True)
