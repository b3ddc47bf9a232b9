"""Hosts as network namespaces, joined by `tests.hosts.switch`; the test itself is the first host, "desk".

A host's clock is `bench.faults.preloaded.CLOCK`: what its programs are told, and no kernel's.
"""

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.faults.namespaces import end_leftovers
from bench.faults.preloaded import CLOCK, write_number

ROOT = Path(__file__).resolve().parents[2]
DESK = "desk"
TUN, TUNSETIFF, IFF_TUN, IFF_NO_PI = "/dev/net/tun", 0x400454CA, 0x0001, 0x1000


def missing() -> str:
    """Why there can be no such network here; "" where there can."""
    if os.geteuid() != 0 or not Path(TUN).exists():
        return "Network namespaces need root and /dev/net/tun."
    if subprocess.run(["ip", "netns", "list"], capture_output=True, check=False).returncode:
        return "Network namespaces need ip; install iproute2."
    return ""


class Network:
    """Hosts 10.77.0.1, .2 … in the order of their names; `of` gives a host's address. Those `clocked` have
    clocks of their own, where a C compiler is at hand.
    """

    def __init__(self, names: Sequence[str], folder: Path, clocked: Sequence[str] = ()) -> None:
        self.names, self.clocked = (DESK, *names), tuple(clocked)
        self.folder = folder
        self._tag = f"w{os.getpid()}"
        self._descriptors: dict[str, int] = {}
        self._switch: subprocess.Popen[str] | None = None
        self._processes: dict[str, list[subprocess.Popen[bytes]]] = {name: [] for name in self.names}
        self._clock_library = CLOCK.build(folder) if clocked else None

    def of(self, name: str) -> str:
        return f"10.77.0.{self.names.index(name) + 1}"

    def space(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def begin(self) -> None:
        for name in self.names:
            self._add(name)
        hosts = [f"{name}={descriptor}" for name, descriptor in self._descriptors.items()]
        self._switch = subprocess.Popen(
            [sys.executable, "-m", "tests.hosts.switch", *hosts],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=list(self._descriptors.values()),
        )

    def _add(self, name: str) -> None:
        device = f"{self._tag}{self.names.index(name)}"
        descriptor = os.open(TUN, os.O_RDWR)
        self._descriptors[name] = descriptor
        fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI))
        ip: tuple[str, ...] = ("ip",)
        if name != DESK:
            _run("ip", "netns", "add", self.space(name))
            _run("ip", "link", "set", device, "netns", self.space(name))
            ip = ("ip", "-n", self.space(name))
            _run(*ip, "link", "set", "lo", "up")
        _run(*ip, "addr", "add", f"{self.of(name)}/24", "dev", device)
        _run(*ip, "link", "set", device, "up")

    def link(self, one: str, other: str, **what: Any) -> None:
        """What happens between two hosts from now on, both ways: cut, delay_seconds, loss; or nothing."""
        assert self._switch is not None and self._switch.stdin and self._switch.stdout
        for source, target in ((one, other), (other, one)):
            self._switch.stdin.write(json.dumps({"from": source, "to": target, **what}) + "\n")
            self._switch.stdin.flush()
            assert self._switch.stdout.readline() == "ok\n"

    @contextmanager
    def disturbed(self, host: str, others: Sequence[str] = (), **what: Any) -> Iterator[None]:
        """Between a host and these, or all, while the context lasts."""
        others = others or [name for name in self.names if name != host]
        try:
            for other in others:
                self.link(host, other, **what)
            yield
        finally:
            for other in others:
                self.link(host, other)

    def start(
        self, host: str, command: Sequence[str], environment: Mapping[str, str], log: str, place: Path = ROOT
    ) -> subprocess.Popen[bytes]:
        """A process on a host, by the host's clock; place: the folder it starts in."""
        line = ["ip", "netns", "exec", self.space(host), *command]
        with (self.folder / f"{log}.log").open("ab") as file:
            process = subprocess.Popen(
                line,
                cwd=place,
                env={**environment, **self._clock(host)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._processes[host].append(process)
        return process

    @property
    def has_clocks(self) -> bool:
        return self._clock_library is not None

    def _clock(self, host: str) -> dict[str, str]:
        if host not in self.clocked or self._clock_library is None:
            return {}
        if not self._clock_file(host).exists():
            self.set_clock(host, 0)
        return {"LD_PRELOAD": str(self._clock_library), CLOCK.variable: str(self._clock_file(host))}

    def _clock_file(self, host: str) -> Path:
        return self.folder / f"clock-{host}"

    def set_clock(self, host: str, ahead_seconds: int) -> None:
        """Step a host's clock: it is so far ahead of the true time."""
        write_number(self._clock_file(host), ahead_seconds)

    def kill_host(self, host: str) -> None:
        """All processes of a host at once, as if it had lost its power."""
        for process in self._processes[host]:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
        self._processes[host].clear()

    def close(self) -> None:
        """Every process, namespace and device goes; safe at any point of the beginning."""
        for host in self.names:
            with suppress(subprocess.TimeoutExpired):
                self.kill_host(host)
        if self._switch is not None:
            with self._switch:  # which closes its pipes and waits for it
                self._switch.kill()
        for name, descriptor in self._descriptors.items():
            os.close(descriptor)
            if name != DESK:
                subprocess.run(["ip", "netns", "del", self.space(name)], check=False, capture_output=True)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def network(names: Sequence[str], folder: Path, clocked: Sequence[str] = ()) -> Iterator[Network]:
    """Up at the start, and gone at the end, whatever happened."""
    end_leftovers()
    made = Network(names, folder, clocked)
    try:
        made.begin()
        yield made
    finally:
        made.close()
