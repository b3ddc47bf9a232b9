"""A replicated control server for tests: a primary, replicas, and the sentinels that watch them."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import redis

from queues.nodes.server import find_server_binary, free_port
from tests.servers import Server, new_server
from tests.waiting import MAX_SECONDS, until

NAME = "control"
DOWN_MILLISECONDS = 1500
FAILOVER_MILLISECONDS = 6000


@dataclass
class Sentinel:
    """One sentinel process."""

    port: int
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    extra: tuple[str, ...] = ()

    def start(self, primary_port: int, host: str = "127.0.0.1") -> "Sentinel":
        path = self.folder / "sentinel.conf"
        if not path.exists():
            path.write_text("\n".join(self._lines(primary_port, host)))
        self.process = subprocess.Popen(
            [find_server_binary(), str(path), "--sentinel"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    def _lines(self, primary_port: int, host: str) -> list[str]:
        return [
            f"bind {host}",
            f"port {self.port}",
            f'dir "{self.folder}"',
            'logfile ""',
            f"sentinel monitor {NAME} {host} {primary_port} 2",
            f"sentinel down-after-milliseconds {NAME} {DOWN_MILLISECONDS}",
            f"sentinel failover-timeout {NAME} {FAILOVER_MILLISECONDS}",
            *self.extra,
            "",
        ]

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(MAX_SECONDS)
            self.process = None


@dataclass
class Replicated:
    """Servers and sentinels on the loopback address. `url` is what REDIS_URL takes."""

    servers: list[Server] = field(default_factory=list)
    sentinels: list[Sentinel] = field(default_factory=list)

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        return f"sentinel://{places}/{NAME}/0"

    def primary(self) -> Server:
        """The server that the sentinels name now."""
        with redis.Redis(port=self.sentinels[0].port) as client:
            address = client.sentinel_get_master_addr_by_name(NAME)
        return next(each for each in self.servers if each.config.port == address[1])

    def replicas(self) -> list[Server]:
        primary = self.primary()
        return [each for each in self.servers if each is not primary]

    def follow(self, server: Server, primary: Server) -> None:
        with server.client() as client:
            client.replicaof("127.0.0.1", primary.config.port)

    def until_whole(self, seconds: float = 30.0) -> None:
        """Return when every sentinel knows all servers, and both replicas follow the primary."""
        until(self._whole, seconds)

    def _whole(self) -> bool:
        port = self.primary().config.port
        with redis.Redis(port=port, socket_timeout=1.0) as client:
            told = client.info("replication")
        online = [each for name, each in told.items() if name.startswith("slave") and name[5:].isdigit()]
        following = sum(each["state"] == "online" for each in online) == len(self.servers) - 1
        return following and told["role"] == "master" and all(map(self._knows, self.sentinels))

    def _knows(self, sentinel: Sentinel) -> bool:
        with redis.Redis(port=sentinel.port, socket_timeout=1.0) as client:
            told = client.sentinel_master(NAME)
        others, replicas = told["num-other-sentinels"], told["num-slaves"]
        return bool(others == len(self.sentinels) - 1 and replicas >= len(self.servers) - 1)


@contextmanager
def ended(plant: Replicated) -> Iterator[None]:
    """Everything of it ends at the end."""
    try:
        yield
    finally:
        for sentinel in plant.sentinels:
            sentinel.close()
        for server in plant.servers:
            with suppress(OSError):
                server.close()


@contextmanager
def replicated(folder: Path, maxmemory_bytes: int = 128 * 2**20) -> Iterator[Replicated]:
    """A primary with two replicas and three sentinels, whole at the start; all end at the end."""
    plant = Replicated()
    with ended(plant):
        for number in range(3):
            plant.servers.append(new_server(folder / f"server-{number}", maxmemory_bytes))
        for server in plant.servers[1:]:
            plant.follow(server, plant.servers[0])
        for number in range(3):
            place = folder / f"sentinel-{number}"
            place.mkdir()
            plant.sentinels.append(Sentinel(free_port(), place).start(plant.servers[0].config.port))
        plant.until_whole()
        yield plant
