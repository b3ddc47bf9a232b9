"""Real Redis-protocol servers for tests: on free ports, with append-only files in temporary folders."""

import signal
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import redis

from queues.nodes.server import ServerConfig, free_port, prepare_server_command
from tests.waiting import MAX_SECONDS, until


@dataclass
class Server:
    """One server process that a test may kill, stop, and start again on the same port and folder."""

    config: ServerConfig
    process: subprocess.Popen[bytes] | None = None
    clients: list[redis.Redis] = field(default_factory=list)
    settings: tuple[str, ...] = ()  # further lines of its configuration file

    @cached_property
    def keeper(self) -> redis.Redis:
        """The connection of who keeps the server between tests; it stays when those of a test are closed."""
        return redis.Redis.from_url(self.url)

    @property
    def url(self) -> str:
        return self.config.url

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> "Server":
        """Start and wait until it answers, its data loaded."""
        line = prepare_server_command(self.config)
        with Path(line[-1]).open("a") as file:
            file.writelines(self.settings)
        self.process = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        with self.client() as client:
            until(client.ping)
        return self

    def client(self, **options: object) -> redis.Redis:
        """A new connection pool to it; bytes come back as bytes."""
        client = redis.Redis.from_url(self.url, **options)
        self.clients.append(client)
        return client

    def kill(self) -> None:
        """kill -9: no goodbye, no last write."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """A clean stop; safe when it is already gone."""
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop answering while connections stay open."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.clients.clear()
        self.keeper.close()
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        self.process.wait(MAX_SECONDS)
        self.process = None


def new_server(folder: Path, maxmemory_bytes: int = 256 * 2**20, **settings: object) -> Server:
    """A started server in its own folder."""
    config = ServerConfig(port=free_port(), folder=folder, maxmemory_bytes=maxmemory_bytes, **settings)
    return Server(config).start()
