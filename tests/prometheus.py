"""A real Prometheus and a real Alertmanager of Debian's packages, on ports that the system gives; tests that
need them are skipped where neither they nor apt are at hand (`bin/prometheus`).
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from queues.nodes.server import free_port
from tests.waiting import MAX_SECONDS, until

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("prometheus", "prometheus-alertmanager", "prometheus-node-exporter", "prometheus-redis-exporter")


def program(name: str) -> str:
    """Its path, installed where that is possible; else the test is skipped."""
    if shutil.which(name) is None:
        subprocess.run([ROOT / "bin" / "prometheus"], check=False, timeout=280)
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed here, and apt can't bring it.")
    return found


@contextmanager
def running(command: Sequence[str], is_ready: Callable[[], bool]) -> Iterator[None]:
    """A server while inside; what it said stands in the failure when it does not come up."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            until(lambda: process.poll() is not None or is_ready(), every_seconds=0.1)
            if process.poll() is not None:
                said.seek(0)
                pytest.fail(f"{command[0]} ended: {said.read()[-2_000:].decode(errors='replace')}")
            yield
        finally:
            process.terminate()
            process.wait(MAX_SECONDS)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=MAX_SECONDS).status_code == 200
    except httpx.HTTPError:
        return False


@contextmanager
def prometheus(folder: Path, targets: Mapping[str, str], interval: str = "1s") -> Iterator[str]:
    """Its address. targets: job → host:port."""
    name, port = program("prometheus"), free_port()
    jobs = [{"job_name": job, "static_configs": [{"targets": [at]}]} for job, at in targets.items()]
    configuration = {"global": {"scrape_interval": interval}, "scrape_configs": jobs}
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration))
    command = [
        name,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    url = f"http://127.0.0.1:{port}"
    with running(command, lambda: answers(f"{url}/-/ready")):
        yield url


@contextmanager
def alertmanager(folder: Path, webhook: str = "", token: str = "") -> Iterator[str]:
    """Its address; what it is sent it sends on to the webhook, with the token as a bearer's."""
    name, port = program("prometheus-alertmanager"), free_port()
    receiver: dict[str, object] = {"name": "weir"}
    if webhook:
        login = {"authorization": {"credentials": token}}
        receiver["webhook_configs"] = [{"url": webhook, "send_resolved": True, "http_config": login}]
    route = {"receiver": "weir", "group_wait": "1s", "group_interval": "1s", "repeat_interval": "1h"}
    file = folder / "alertmanager.yml"
    file.write_text(yaml.safe_dump({"route": route, "receivers": [receiver]}))
    command = [
        name,
        f"--config.file={file}",
        f"--storage.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    url = f"http://127.0.0.1:{port}"
    with running(command, lambda: answers(f"{url}/-/ready")):
        yield url
