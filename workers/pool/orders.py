"""The number of processes that a worker host is to have: ordered on the control server, followed by the host.

`weir:pool:{host}`: JSON {"threads", "pid"}, valid for ORDER_SECONDS unless its loop confirms it (`keep`). A
repeated order is therefore harmless, a host that misses a message misses nothing, and a pool whose loop is gone, or
only advises now, goes back to its initial size. An order is for one life of a host: a restarted one starts with its own
size, and gets a new order.
"""

import logging

import orjson
import redis

from common.errors import BadInput
from common.stored_document import BadDocument, ReportReader, decode_document
from queues import keys
from queues.control.replies import expect_bytes
from workers.documents.hosts import ReportedHost

ORDER_SECONDS = 60
MAX_THREADS = 1_000


def order(control: redis.Redis, host: str, threads: int) -> None:
    """Order a number of processes from a host.

    Raises `BadInput` for a number out of range, a host that does not report, or one whose pool has no processes.
    """
    if not 1 <= threads <= MAX_THREADS:
        raise BadInput("threads", f"must be a whole number from 1 to {MAX_THREADS}, not {threads}.")
    stored = control.hget(keys.HOSTS, host)
    if stored is None:
        raise BadInput("host", f"{host} is not reporting. Start the worker host.")
    try:
        report = decode_document(ReportedHost, stored, host)
    except BadDocument as error:
        raise BadInput(
            "host", f"has an unreadable report ({error}). Run the host with the same version of Weir."
        ) from None
    if not report.resizable:
        raise BadInput(
            "host", f"the pool of {host} has no processes to add or remove. Start the host with the prefork pool."
        )
    control.set(keys.POOL.build(host), orjson.dumps({"threads": threads, "pid": report.pid}), ex=ORDER_SECONDS)


def keep(control: redis.Redis, host: str) -> None:
    """Extend the order, if there is one."""
    control.expire(keys.POOL.build(host), ORDER_SECONDS)


_READER = ReportReader(logging.getLogger(__name__))
AT_WORK_SECONDS = 30.0  # a host reports each second; one that has not for longer has ended


def read_host_reports(control: redis.Redis) -> dict[str, ReportedHost]:
    """Return the readable reports by host, in their order; also of hosts killed within the last day."""
    return _read_reports(control)[0]


def list_unreadable_reports(control: redis.Redis) -> dict[str, str]:
    """Return the hosts whose report can't be read, as of another version, with the reason."""
    return _read_reports(control)[1]


def _read_reports(control: redis.Redis) -> tuple[dict[str, ReportedHost], dict[str, str]]:
    stored = expect_bytes(control).hgetall(keys.HOSTS)
    return _READER.read(ReportedHost, sorted(stored.items()), "host report")


def is_at_work(report: ReportedHost, now_seconds: float) -> bool:
    """Return whether the host runs. `now_seconds`: since 1970, by the control server's or an equivalent clock."""
    return abs(report.at - (report.ahead_seconds or 0.0) - now_seconds) < AT_WORK_SECONDS
