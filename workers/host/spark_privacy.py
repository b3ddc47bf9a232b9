"""Protection of Spark's processes against other users of a machine and other machines.

| what listens | who gets in |
|---|---|
| driver (RPC, blocks), executors, master, workers | who knows Spark's secret; encrypted |
| Py4J's gateway | who knows the token that Spark gives its own Python process |
| Py4J's callbacks (`admit_this_user_only`) | processes of this user: Spark's Java has no token for them |
| daemons of Python workers, accumulators | who knows the secret that Spark gives its own Python processes |
| calls of streaming sources (`pipeline/python/calls`) | this user: the folder is closed to others |
"""

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from common import environment as variables
from common.errors import BadInput
from common.files import create_private_folder, write_private
from workers.host.java import quote_option

MIN_SECRET = 32
_TCP_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
AUTHENTICATION = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
# The pages of a cluster's master and workers have no login, so they must not be able to end anything.
_READ_ONLY_PAGES = {"spark.ui.killEnabled": "false", "spark.master.ui.decommission.allow.mode": "DENY"}
_NO_COUNTERS = "-XX:-UsePerfData"


def build_java_options(folder: Path) -> str:
    """Return options that keep Java's counters, which others can read, and temporary files out of /tmp."""
    temporary = folder / "tmp"
    create_private_folder(temporary)
    return f"{_NO_COUNTERS} {quote_option(f'-Djava.io.tmpdir={temporary}')}"


def build_private_settings(master: str, folder: Path) -> dict[str, str]:
    """Return Spark's settings for a driver whose files are in `folder`. Raises BadInput.

    For a cluster, its environment is changed, too, before Java starts.
    """
    settings = {
        **AUTHENTICATION,
        "spark.executor.extraJavaOptions": _NO_COUNTERS,
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


def admit_this_user_only(gateway: Any) -> None:
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
