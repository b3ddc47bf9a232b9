"""A container engine and the shipped compose file on it, as an operator would start it."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = Path(__file__).parent / "stand_ins"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "/var/cache")) / "weir-stand-ins"
# crun refuses hybrid cgroups, and limits can't be raised in a container of our own.
CONTAINERS_CONF = """[containers]
default_ulimits=[]
[engine]
runtime="runc"
[network]
network_backend="netavark"
"""
# Each brings a program of its own name.
PACKAGES = ("podman", "runc", "netavark", "aardvark-dns", "iptables", "conmon", "debootstrap")
PROGRAM_PATH = f"{os.environ['PATH']}:/usr/lib/podman"
PROJECT = "weirtest"
NAMES = Path("/run/containers/networks/aardvark-dns")  # what its name server reads, a file a network
HEALTH_EVERY_SECONDS = 2.0
# Where there is no tag yet: a version with a few migrations less (24 November 2026).
BEFORE_THE_FIRST_TAG = "a6c56aa6"


def missing() -> str:
    """What this machine lacks for containers; empty where nothing is missing."""
    if os.geteuid():
        return "containers need root"
    absent = [program for program in PACKAGES if not shutil.which(program, path=PROGRAM_PATH)]
    if absent:
        return f"{', '.join(absent)} missing: apt-get install {' '.join(PACKAGES)}"
    return "" if composer() else "podman-compose is not installed: bin/venv dev"


def composer() -> str | None:
    return shutil.which("podman-compose", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@dataclass
class Container:
    """A container as the engine reports it. `health` is empty where its service declares no check."""

    name: str
    service: str
    state: str
    health: str
    exit_code: int

    def is_up(self) -> bool:
        """Serves, or did its work and ended (setup, access)."""
        if self.state == "exited":
            return self.exit_code == 0 and self.service in ("setup", "access")
        return self.state == "running" and self.health in ("", "healthy")


@dataclass
class Stack:
    """A copy of the repository with its own `.env`, and the containers started from it."""

    folder: Path
    environment: dict[str, str]

    def run(self, *command: str, timeout_seconds: float = 900, check: bool = True) -> str:
        answer = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=timeout_seconds
        )
        if check and answer.returncode:
            raise AssertionError(f"{' '.join(command)}: {answer.stdout[-2000:]}{answer.stderr[-4000:]}")
        return answer.stdout

    def podman(self, *arguments: str, **options: Any) -> str:
        return self.run("podman", *arguments, **options)

    def compose(self, *arguments: str, **options: Any) -> str:
        return self.run(composer() or "podman-compose", "--project-name", PROJECT, *arguments, **options)

    def inside(self, service: str, *command: str, **options: Any) -> str:
        """What a command prints in the service's first container."""
        return self.podman("exec", f"{PROJECT}_{service}_1", *command, **options)

    def manage(self, *arguments: str, **options: Any) -> str:
        return self.inside("web", "python", "manage.py", *arguments, **options)

    def containers(self) -> list[Container]:
        names = self.podman("ps", "--all", "--quiet", "--filter", f"label=io.podman.compose.project={PROJECT}").split()
        if not names:
            return []
        return [container_of(each) for each in json.loads(self.podman("inspect", *names, check=False) or "[]")]

    def remove(self) -> None:
        """Containers, networks and volumes, also those that a run before this one left."""
        self.compose("down", "--volumes", "--remove-orphans", check=False)
        for volume in self.podman("volume", "ls", "--quiet", "--filter", f"name={PROJECT}_").split():
            self.podman("volume", "rm", "--force", volume)
        # A run that was killed leaves names there, which go on standing for its containers.
        for names in NAMES.glob(f"{PROJECT}_*"):
            names.unlink()

    def check_health(self) -> None:
        """The engine's own timers need systemd; where there is none somebody has to ask."""
        for container in self.containers():
            if container.state == "running" and container.health:
                self.podman("healthcheck", "run", container.name, check=False)

    @contextmanager
    def asked_for_health(self) -> Iterator[None]:
        ended = threading.Event()

        def ask() -> None:
            while not ended.wait(HEALTH_EVERY_SECONDS):
                self.check_health()

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def container_of(found: dict[str, Any]) -> Container:
    state, labels = found["State"], found["Config"]["Labels"]
    health = state.get("Health") or state.get("Healthcheck") or {}
    return Container(
        name=found["Name"],
        service=labels["com.docker.compose.service"],
        state=state["Status"],
        health=health.get("Status", "") if found["Config"].get("Healthcheck") else "",
        exit_code=state["ExitCode"],
    )


def engine_environment(folder: Path) -> dict[str, str]:
    """For podman and compose; `folder` takes the engine's settings."""
    settings = folder / "containers.conf"
    settings.write_text(CONTAINERS_CONF)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    path = f"{STAND_INS}:{Path(sys.executable).parent}:{kept['PATH']}"
    return {**kept, "PATH": path, "CONTAINERS_CONF": str(settings), "BUILDAH_FORMAT": "docker"}


def checkout(folder: Path, revision: str = "HEAD") -> None:
    """The files of a commit, as somebody who downloads them has them."""
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)


def version_before() -> str:
    """The last tag, if this is not it, else the commit above."""
    asked = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0", "HEAD^"], cwd=ROOT, capture_output=True, text=True
    )
    found = asked.stdout.strip() if asked.returncode == 0 else BEFORE_THE_FIRST_TAG
    if subprocess.run(["git", "cat-file", "-e", f"{found}^{{commit}}"], cwd=ROOT, capture_output=True).returncode:
        pytest.skip(f"the version before ({found}) is not in this checkout: git fetch --unshallow")
    return found


def prepared(folder: Path, settings: dict[str, str]) -> Stack:
    """A checkout with its secrets made by `bin/compose-secrets`, its settings filled in, its images built."""
    stack = Stack(folder, engine_environment(folder))
    stack.run(str(STAND_INS / "build"), str(CACHE))
    stack.run("bin/compose-secrets")
    configure(folder / ".env", settings)
    for service in ("setup", "proxy"):  # all others run what setup builds; all at once they fill the disk
        stack.compose("build", service, timeout_seconds=1800)
    return stack


def configure(path: Path, settings: dict[str, str]) -> None:
    """Each setting's own line in `.env`, replaced or added."""
    lines = [line for line in path.read_text().splitlines() if line.split("=")[0] not in settings]
    path.write_text("\n".join([*lines, *(f"{name}={value}" for name, value in settings.items())]) + "\n")
