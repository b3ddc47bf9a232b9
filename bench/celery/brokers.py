"""Brokers for a bench or a test: real servers on free ports, gone afterwards; each app has its place."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from bench.queues.node_servers import node_servers
from queues.nodes.server import free_port

START_SECONDS = 90.0
# Debian's own script gives up root's rights for those of a user whose files are elsewhere.
DEBIAN = "/usr/lib/rabbitmq/bin/rabbitmq-server"
RABBITMQ = DEBIAN if Path(DEBIAN).exists() else shutil.which("rabbitmq-server")
GUEST = ("guest", "guest")


@contextmanager
def valkey(apps: Sequence[str]) -> Iterator[Mapping[str, str]]:
    """App → address: a database each."""
    with node_servers(("broker",)) as servers:
        server = "/".join(servers["broker"].split("/")[:3])
        yield {name: f"{server}/{number}" for number, name in enumerate(apps)}


@contextmanager
def rabbitmq(apps: Sequence[str], folder: Path) -> Iterator[Mapping[str, str]]:
    """App → address: a virtual host each. Debian's server with its management plugin, a node of its own."""
    port, management, distribution = free_port(), free_port(), free_port()
    folder.mkdir(parents=True)
    (folder / "enabled_plugins").write_text("[rabbitmq_management].\n")
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.default = 127.0.0.1:{port}\nmanagement.tcp.ip = 127.0.0.1\n"
        f"management.tcp.port = {management}\nvm_memory_high_watermark.relative = 0.2\n"
    )
    environment = {
        **os.environ,
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"weir{port}@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
    }
    with (folder / "output").open("w") as output:
        command = [RABBITMQ or "rabbitmq-server"]
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            _await(management, port, process, folder)
            yield {name: _virtual_host(name.replace(" ", "-"), port, management) for name in apps}
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def _await(management: int, port: int, process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Wait until it accepts clients: the management plugin answers earlier."""
    listens = f"http://127.0.0.1:{management}/api/health/checks/port-listener/{port}"
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(listens, auth=GUEST, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise RuntimeError(f"RabbitMQ did not start:\n{(folder / 'output').read_text()[-3000:]}")


def _virtual_host(name: str, port: int, management: int) -> str:
    base, everything = f"http://127.0.0.1:{management}/api", {"configure": ".*", "write": ".*", "read": ".*"}
    httpx.put(f"{base}/vhosts/{name}", auth=GUEST, timeout=30).raise_for_status()
    permitted = httpx.put(f"{base}/permissions/{name}/guest", auth=GUEST, json=everything, timeout=30)
    permitted.raise_for_status()
    return f"amqp://127.0.0.1:{port}/{name}"
