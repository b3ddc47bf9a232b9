"""Reports of worker hosts (`weir:hosts`), for other processes."""

from typing import cast

import redis

from queues import keys
from queues.redis_types import Fields
from queues.stored_document import decode_document
from workers.documents.hosts import ReportedHost

AT_WORK_SECONDS = 30.0  # A host reports each second; one that has not for longer has ended.


def host_reports(control: redis.Redis) -> dict[str, ReportedHost]:
    """Return reports by the host's name, sorted; including hosts that were killed within the last day.

    Raises `BadDocument`.
    """
    stored = cast(Fields, control.hgetall(keys.HOSTS))
    return {
        name.decode(): decode_document(ReportedHost, text, name.decode())
        for name, text in sorted(stored.items())
    }


def is_at_work(report: ReportedHost, now_seconds: float) -> bool:
    """Return whether the host is running. `now_seconds`: since 1970, by the control server's clock or an
    equivalent one.
    """
    return abs(report.at - (report.ahead_seconds or 0.0) - now_seconds) < AT_WORK_SECONDS
