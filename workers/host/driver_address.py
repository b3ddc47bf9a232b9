"""The address of a Spark driver: loopback when everything runs here, reachable by executors for a cluster."""

import socket

from common import environment as variables

SCHEME = "spark://"


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
    host, _, port = master.removeprefix(SCHEME).partition(",")[0].rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((host, int(port)))  # a datagram socket: nothing is sent
            address: str = way.getsockname()[0]
            return address
    except (OSError, ValueError, OverflowError):  # no such host, or no number or valid port
        return ""
