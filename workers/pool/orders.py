"""How many processes a worker host is to have: asked for on the control server, followed by the host.

`weir:pool:{host}`: JSON {"threads", "pid"}, for ORDER_SECONDS unless its loop says again that it stands
(`keep`). So it is harmless to ask twice, a host that misses a message misses nothing, and a pool whose loop
is gone, or only advises now, goes back to the size it was started with. An order is for one life of a host:
one that is started again begins with its own size, and is asked again.
"""

import orjson
import redis

from queues import keys
from queues.errors import BadInput
from queues.stored_document import BadDocument, decoded
from workers.documents.hosts import ReportedHost

ORDER_SECONDS = 60
MOST_THREADS = 1_000


def order(control: redis.Redis, host: str, threads: int) -> None:
    """Ask a host for so many processes. Raises BadInput for a number out of range, a host that does not
    report, or one whose pool has no processes."""
    if not 1 <= threads <= MOST_THREADS:
        raise BadInput("threads", f"takes a whole number from 1 to {MOST_THREADS}, not {threads}.")
    stored = control.hget(keys.HOSTS, host)
    if stored is None:
        raise BadInput("host", f"{host} does not report; start its worker.")
    try:
        report = decoded(ReportedHost, stored, host)
    except BadDocument as error:
        raise BadInput(
            "host", f"reports what can't be read ({error}); run it in this version of Weir."
        ) from None
    if not report.resizable:
        raise BadInput("host", f"the pool of {host} has no processes to add or remove; start it as prefork.")
    control.set(keys.POOL.of(host), orjson.dumps({"threads": threads, "pid": report.pid}), ex=ORDER_SECONDS)


def keep(control: redis.Redis, host: str) -> None:
    """The order stands for longer, if there is one."""
    control.expire(keys.POOL.of(host), ORDER_SECONDS)
