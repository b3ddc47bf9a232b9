"""Servers that lose power: what they wrote and did not sync is lost, except a random part of it.

Each server has a simulated disk (`bench.faults.synced_bytes`). At a power loss it is killed, and each of its files is
cut to the bytes that were synced and a random part of the rest.
"""

import os
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from random import Random

import redis

from bench.faults.preloaded import SYNCED
from queues.nodes.file_sync import FILES
from queues.nodes.replication import ReplicaPair, can_replace_primary
from queues.nodes.server import ServerConfig, free_port, prepare_server_command
from queues.nodes.write_sync import WriteSync
from queues.topology import NodeSpec, QueueSpec

MAXMEMORY_BYTES = 1024 * 2**20
START_SECONDS, PING_SECONDS = 20.0, 0.005
SYNC_MICROSECONDS = 1_000


@dataclass
class PowerServer:
    """A server and its disk. library: of the simulated disk; None for the real one."""

    name: str
    config: ServerConfig
    library: Path | None
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.config.url

    @property
    def _records(self) -> Path:
        return self.config.folder.with_name(f"{self.name}.synced")

    def start(self) -> None:
        """Start the server, and wait until it has loaded its files. It syncs nothing until it is told to."""
        self._records.mkdir(parents=True, exist_ok=True)
        simulated = {
            "LD_PRELOAD": str(self.library),
            SYNCED.variable: str(self._records),
            "WEIR_SYNC_MICROSECONDS": str(SYNC_MICROSECONDS),
        }
        environment = {**os.environ, **(simulated if self.library else {})}
        self.process = subprocess.Popen(
            prepare_server_command(self.config),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for_server(self.url)

    def sync_files(self) -> None:
        """Do what `FileSync` does each second."""
        for path in self.config.folder.glob(FILES):
            self._record(path, path.stat().st_size)

    def kill(self) -> None:
        """Stop the server at once. Its files stay as the kernel has them."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def lose_unsynced_writes(self, chance: Random) -> int:
        """Cut each file of a killed server; return the number of lost bytes."""
        lost = 0
        for path in sorted((self.config.folder / "appendonlydir").glob("*")):
            about = path.stat()
            unsynced = max(0, about.st_size - self._read_synced(about.st_ino))
            kept = chance.choice((0, unsynced, chance.randint(0, unsynced)))
            if kept < unsynced:
                os.truncate(path, about.st_size - unsynced + kept)
                lost += unsynced - kept
            self._record(path, about.st_size - unsynced + kept)
        return lost

    def lose_disk(self) -> None:
        """Remove everything that the server has stored."""
        shutil.rmtree(self.config.folder)

    def _read_synced(self, inode: int) -> int:
        path = self._records / str(inode)
        record = path.read_bytes() if path.exists() else b""
        # Empty if the server was killed while it created the record: nothing was synced yet.
        return int(struct.unpack("=q", record)[0]) if record else 0

    def _record(self, path: Path, size: int) -> None:
        (self._records / str(path.stat().st_ino)).write_bytes(struct.pack("=q", size))


@dataclass
class PowerNode:
    """A node with one server, or with a second one that copies it. servers: in the order of the declaration."""

    name: str
    servers: list[PowerServer]
    promotions: int = 0
    problem: str = "not checked"  # why durable queues can't use it

    @classmethod
    def create(cls, name: str, folder: Path, library: Path | None, has_replica: bool) -> "PowerNode":
        names = [name, f"{name}-replica"] if has_replica else [name]
        ports = [free_port() for _ in names]
        peers = ports[::-1] if has_replica else [None]
        configs = [
            ServerConfig(port, folder / server, maxmemory_bytes=MAXMEMORY_BYTES, peer_port=peer)
            for server, port, peer in zip(names, ports, peers, strict=True)
        ]
        servers = [PowerServer(server, config, library) for server, config in zip(names, configs, strict=True)]
        return cls(name, servers)

    @property
    def spec(self) -> NodeSpec:
        """Return the node as the topology names it."""
        urls = [server.url for server in self.servers]
        if len(urls) == 1:
            return NodeSpec(self.name, urls[0])
        primary = self.promotions % 2
        return NodeSpec(self.name, urls[primary], replica_url=urls[1 - primary], promotions=self.promotions)

    def align(self, queue: QueueSpec) -> None:
        """Do what the agent of the node does each second."""
        spec = self.spec
        self.problem = ReplicaPair().align(spec, [queue]) if spec.replica_url else ""
        with redis.Redis.from_url(spec.url, retry=None, socket_timeout=2.0) as node:
            self.problem = WriteSync().align(node, [queue]) or self.problem

    def recover(self) -> bool:
        """Do what recovery does with a lost node; return whether the servers have changed places."""
        if not can_replace_primary(self.spec):
            return False
        self.promotions += 1
        return True


def wait_for_server(url: str) -> None:
    """Return when the server answers. Raises redis-py's error after START_SECONDS."""
    retry = redis.retry.Retry(redis.backoff.ConstantBackoff(PING_SECONDS), int(START_SECONDS / PING_SECONDS))
    errors = [redis.ConnectionError, redis.BusyLoadingError]
    with redis.Redis.from_url(url, retry=retry, retry_on_error=errors) as client:
        client.ping()
