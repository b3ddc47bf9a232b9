"""A whole plant that can be broken in every way: each process by its name, its disk, and its clock.

The data folder is a small file system of its own (tmpfs, where this user may mount one), so that it can be full. Its
clock, its slow or read-only disk, and its partitions are `bench.faults.preloaded`'s, in every process that ./run
starts, servers included. The pipeline is not reached, as it keeps little of its environment.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Self

import psutil
import redis

from bench.faults.load import QUEUE
from bench.faults.preloaded import CLOCK, DISK, LINKS, READ_ONLY, Preloaded, encode_cut, write_number
from bench.plant.running_plant import RunningPlant
from console.connections.processes import list_family
from console.connections.supervisor import open_supervisor
from console.embedded.local import EmbeddedServers

DISK_MEGABYTES = 3072
SERVERS = ("control", "n1", "n2", "n3")


class BrokenPlant(RunningPlant):
    """Use as a context. has_disk, has_clock, has_links, …: whether these can be broken here.

    destroyed_events: how many events of the load the faults have destroyed at most, in files of servers.
    """

    has_disk = False
    has_clock = False
    has_slow_disk = False
    has_read_only_disk = False
    has_links = False
    destroyed_events = 0

    def __enter__(self) -> Self:
        try:
            return super().__enter__()
        except BaseException:
            self._clear()
            raise

    def folder_of_data(self) -> Path:
        data = Path(self.folder.name) / "data"
        data.mkdir(mode=0o700)
        options = f"size={DISK_MEGABYTES}m,mode=700"
        if shutil.which("mount"):
            mounting = ["mount", "-t", "tmpfs", "-o", options, "weir-faults", str(data)]
            self.has_disk = subprocess.run(mounting, capture_output=True).returncode == 0
        return data

    def environment_of_run(self) -> dict[str, str]:
        environment = super().environment_of_run()
        folder = Path(self.folder.name)
        variables_of_run = {each: each.build(folder) for each in (CLOCK, DISK, LINKS, READ_ONLY)}
        libraries = {each: library for each, library in variables_of_run.items() if library is not None}
        for each in libraries:
            write_number(self._number(each), 0)
            environment[each.variable] = str(self._number(each))
        if libraries:
            environment["LD_PRELOAD"] = ":".join(map(str, libraries.values()))
        self.has_clock, self.has_slow_disk, self.has_links = (each in libraries for each in (CLOCK, DISK, LINKS))
        # Without a file system of its own, the whole disk of this machine would be read-only for the plant.
        self.has_read_only_disk = self.has_disk and READ_ONLY in libraries
        return environment

    def _number(self, library: Preloaded) -> Path:
        return Path(self.folder.name) / f"{library.name}.number"

    def __exit__(self, *raised: object) -> None:
        if self.has_clock:
            self.step_clock(0)
        super().__exit__(*raised)
        self._clear()

    def _clear(self) -> None:
        if self.has_disk:
            data = str(Path(self.folder.name) / "data")
            subprocess.run(["umount", "-l", data], capture_output=True, check=False)
        shutil.rmtree(self.folder.name, ignore_errors=True)

    def step_clock(self, seconds: int) -> None:
        """Every process sees a clock that is off by so much, at once."""
        write_number(self._number(CLOCK), seconds)

    @contextmanager
    def slow_disk(self, milliseconds: int) -> Iterator[None]:
        """Every write takes so much longer, and every fsync ten times as much."""
        write_number(self._number(DISK), milliseconds)
        try:
            yield
        finally:
            write_number(self._number(DISK), 0)

    @contextmanager
    def read_only_disk(self) -> Iterator[None]:
        """Every write into the data folder fails, also into files that are open."""
        write_number(self._number(READ_ONLY), 1)
        try:
            yield
        finally:
            write_number(self._number(READ_ONLY), 0)

    @contextmanager
    def cut_links(self, name: str, *, requests: bool, answers: bool) -> Iterator[None]:
        """The requests to a server, or its answers, are lost. A connection that has lost data stays silent."""
        port = EmbeddedServers(self.data).ports[name]
        write_number(self._number(LINKS), encode_cut(port, to_port=requests, from_port=answers))
        try:
            yield
        finally:
            write_number(self._number(LINKS), 0)

    def damage_log(self, name: str, damage: Callable[[Path, str, Random], int], chance: Random) -> None:
        """Pause a server, damage its append-only file, and kill the server, which starts again."""
        server = self.find_process(name)
        server.suspend()
        try:
            self.destroyed_events += damage(self.data / "servers" / name, QUEUE, chance)
        finally:
            server.kill()

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Nothing more can be written into the data folder."""
        filling = self.data / "filling"
        try:
            with filling.open("wb") as file:
                piece = b"\0" * 2**20
                while True:
                    file.write(piece)
                    file.flush()
        except OSError:
            pass
        try:
            yield
        finally:
            filling.unlink(missing_ok=True)

    def rows(self) -> dict[str, dict[str, Any]]:
        """What the supervisor says of each process."""
        text = (self.data / "supervisor.conf").read_text(encoding="utf-8")
        match = re.search(r"\[unix_http_server\]\s+file=(\S+)", text)
        assert match is not None
        with open_supervisor(match[1]) as supervisor:
            return {row["name"]: row for row in supervisor.getAllProcessInfo()}

    def find_process(self, name: str) -> psutil.Process:
        """The process that the supervisor has started under this name."""
        return psutil.Process(self.rows()[name]["pid"])

    def family(self, name: str) -> list[psutil.Process]:
        """It, and all that it has started, but for what has ended meanwhile."""
        return list_family(self.rows()[name]["pid"])

    def server(self, name: str) -> redis.Redis:
        """A connection to a server of the plant, that fails fast."""
        url = EmbeddedServers(self.data).build_url(name)
        return redis.Redis.from_url(url, socket_timeout=1.0, socket_connect_timeout=1.0, retry=None)
