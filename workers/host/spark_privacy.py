"""What keeps other users of a machine, and other machines, out of Spark's processes.

| what listens | who gets in |
|---|---|
| driver (RPC, blocks), executors, master, workers | who knows Spark's secret; encrypted |
| Py4J's gateway | who knows the token that Spark gives its own Python process |
| Py4J's callbacks (`admit_this_user_only`) | processes of this user: Spark's Java knows no token for them |
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

from queues import environment as variables
from queues.errors import BadInput
from queues.private_files import private_folder, write_private
from workers.host.java import quote_option

SHORTEST_SECRET = 32
_TCP_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
AUTHENTICATION = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
# The pages of a cluster's master and workers know no logins: from them nothing can be ended.
_READ_ONLY_PAGES = {"spark.ui.killEnabled": "false", "spark.master.ui.decommission.allow.mode": "DENY"}
_NO_COUNTERS = "-XX:-UsePerfData"


def java_options(folder: Path) -> str:
    """No file in /tmp: neither Java's counters, which others can read, nor what it puts aside."""
    temporary = folder / "tmp"
    private_folder(temporary)
    return f"{_NO_COUNTERS} {quote_option(f'-Djava.io.tmpdir={temporary}')}"


def private_settings(master: str, folder: Path) -> dict[str, str]:
    """Spark's settings for a driver whose files lie in `folder`; for a cluster's, its environment too, which
    must then be there before Java starts. Raises BadInput.
    """
    settings = {
        **AUTHENTICATION,
        "spark.executor.extraJavaOptions": _NO_COUNTERS,
        # Hadoop's file classes set modes themselves, whatever the umask.
        "spark.hadoop.fs.permissions.umask-mode": "077",
    }
    if not master.startswith("local"):  # without a cluster, Spark makes the secret itself
        variables.PROCESS.update(cluster_environment(variables.PROCESS, folder / "conf"))
    return settings


def cluster_environment(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The variable that names Spark's defaults, with the cluster's secret in them: what is on a command line
    or in Spark's own settings, `ps` shows to everybody. Raises BadInput for a secret that is too short.
    """
    secret = variables.SPARK_SECRET.text(environment)
    if len(secret) < SHORTEST_SECRET or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise BadInput(
            variables.SPARK_SECRET.name,
            f"takes {SHORTEST_SECRET} or more visible ASCII characters: master, workers and drivers of a "
            "Spark cluster know each other by it.",
        )
    private_folder(folder)
    settings = {**AUTHENTICATION, **_READ_ONLY_PAGES, "spark.authenticate.secret": secret}
    write_private(
        folder / "spark-defaults.conf", "".join(f"{name} {value}\n" for name, value in settings.items())
    )
    return {"SPARK_CONF_DIR": str(folder)}


def admit_this_user_only(gateway: Any) -> None:
    """Spark calls Python back over a port without a token: only processes of this user may. To be called
    before the first foreachBatch, which opens the port.
    """
    gateway.callback_server_parameters.ssl_context = ThisUserOnly()


class ThisUserOnly:
    """Py4J hands each accepted connection to its `ssl_context`; this one checks whose it is."""

    def wrap_socket(self, connection: socket.socket, server_side: bool) -> socket.socket:
        """The connection as it is, or one that is over: an exception would end the server for everybody, and
        from a connection that is only shut one can still read what a stranger sent.
        """
        if owner_of(connection) in (None, os.getuid()):
            return connection
        connection.close()
        ended, other_end = socket.socketpair()
        other_end.close()
        return ended


def owner_of(connection: socket.socket) -> int | None:
    """The uid of the process at the other end of a loopback connection, from the kernel's table. None: this
    system has no such table. A connection that the table does not have belongs to nobody (-1).
    """
    if not _TCP_TABLES[0].exists():
        return None
    with suppress(OSError):
        wanted = (_format_as_hex(connection.getpeername()), _format_as_hex(connection.getsockname()))
        for local, remote, uid in _connections():
            if (local[-13:], remote[-13:]) == wanted:
                return uid
    return -1


def _connections() -> Iterator[tuple[str, str, int]]:
    for table in _TCP_TABLES:
        if table.exists():
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                yield fields[1], fields[2], int(fields[7])


def _format_as_hex(address: tuple[str, int]) -> str:
    """As the kernel writes an IPv4 address; at the end of a mapped IPv6 address it is the same."""
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"
