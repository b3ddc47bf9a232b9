"""Where a Spark driver is found: by nobody else when all runs here, by a cluster's executors otherwise."""

import socket

from queues import environment as variables

SCHEME = "spark://"


def driver_settings(master: str) -> dict[str, str]:
    """Spark's settings for a driver of this master."""
    if master.startswith("local"):
        return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    host = variables.SPARK_DRIVER_HOST.text() or _find_local_address(master) or socket.gethostname()
    return {"spark.driver.host": host, "spark.driver.bindAddress": "0.0.0.0"}


def _find_local_address(master: str) -> str:
    """This host's address on the way to the first master of `spark://host:port[,host:port…]`; "" without one.

    A name may stand for several networks, and after a container's restart for one that is gone: executors
    that try that one never begin.
    """
    host, _, port = master.removeprefix(SCHEME).partition(",")[0].rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((host, int(port)))  # of datagrams: nothing is sent
            address: str = way.getsockname()[0]
            return address
    except (OSError, ValueError, OverflowError):  # no such host, no number, no port
        return ""
