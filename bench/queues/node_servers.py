"""Servers for measurements: real ones on free ports, append-only with everysec, in a temporary folder."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from queues import keys
from queues.nodes.server import ServerConfig, free_port, prepare_server_command
from queues.points import share
from queues.topology import NodeSpec, QueueSpec, Topology

MAXMEMORY_BYTES = 2 * 2**30
START_SECONDS = 20


@contextmanager
def node_servers(names: tuple[str, ...], bind: str = "127.0.0.1") -> Iterator[dict[str, str]]:
    """Start servers, and yield {name: URL}. The servers and their files are removed at the end.

    bind: address of the servers. Every host that reaches this address can use them.
    """
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        configs = {
            name: ServerConfig(free_port(), Path(folder) / name, maxmemory_bytes=MAXMEMORY_BYTES, bind=bind)
            for name in names
        }
        processes = [
            subprocess.Popen(
                [*prepare_server_command(config), "--protected-mode", "no"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            for config in configs.values()
        ]
        try:
            for config in configs.values():
                _await(config.url)
            yield {name: config.url for name, config in configs.items()}
        finally:
            for process in processes:
                process.kill()
                process.wait()


def write_topology(control_url: str, queue: str, nodes: dict[str, str]) -> None:
    """A topology of these nodes with one queue over all of them."""
    specs = {name: NodeSpec(name, url) for name, url in nodes.items()}
    queues = {queue: QueueSpec(queue, "jobs", share(list(nodes)), minimum_containers=1)}
    with redis.Redis.from_url(control_url) as control:
        control.set(keys.TOPOLOGY, Topology(1, specs, queues).to_json())


def _await(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    with redis.Redis.from_url(url) as client:
        while True:
            try:
                client.ping()
                return
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
