"""Reports of worker hosts (`weir:hosts`), for other processes."""

import logging
from typing import cast

import redis

from common.redis_types import Fields
from common.stored_document import ReportReader
from queues import keys
from workers.documents.hosts import ReportedHost

_READER = ReportReader(logging.getLogger(__name__))
AT_WORK_SECONDS = 30.0  # a host reports each second; one that has not for longer has ended


def read_host_reports(control: redis.Redis) -> dict[str, ReportedHost]:
    """Return the readable reports by host, in their order; also of hosts killed within the last day."""
    return _read_reports(control)[0]


def list_unreadable_reports(control: redis.Redis) -> dict[str, str]:
    """Return the hosts whose report can't be read, as of another version, with the reason."""
    return _read_reports(control)[1]


def _read_reports(control: redis.Redis) -> tuple[dict[str, ReportedHost], dict[str, str]]:
    stored = cast(Fields, control.hgetall(keys.HOSTS))
    return _READER.read(ReportedHost, sorted(stored.items()), "host report")


def is_at_work(report: ReportedHost, now_seconds: float) -> bool:
    """Return whether the host is running.

    `now_seconds`: since 1970, by the control server's clock or an equivalent one.
    """
    return abs(report.at - (report.ahead_seconds or 0.0) - now_seconds) < AT_WORK_SECONDS
