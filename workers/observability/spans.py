"""Spans of what a process does, with the ids of its log lines (`common.logs`), for a collector.

    with span("tick", loop=loop.name):       # log lines within name the loop, and so does the span
        note({"weir.decision": entry.pk})    # what is known later

Without OTEL_EXPORTER_OTLP_ENDPOINT a span only sets the log's ids: OpenTelemetry is not imported.

A span contains ids, our own names, and counts. It never contains an event, an error's text (it may quote one), or a
requested address: attributes leave the plant.
"""

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

from common import environment as variables
from common import logs

if TYPE_CHECKING:
    from workers.observability.collector import Collector

PREFIX = "weir."
TRACE = "trace"


def is_enabled() -> bool:
    """Return whether spans are sent."""
    return variables.OTLP_ENDPOINT.is_set()


@lru_cache(maxsize=1)
def _get_collector(pid: int) -> "Collector":
    """Return this process's collector. A forked process shares neither threads nor connections with its parent."""
    # Without a collector, its client library is not imported.
    from workers.observability.collector import Collector

    return Collector.open()


def span(name: str, parent: Mapping[str, object] | None = None, /, **ids: object) -> AbstractContextManager[None]:
    """Record a span, and set `logs.about(**ids)`. `parent`: what `carry` put into a message, or a request's headers."""
    return _record(name, parent, ids) if is_enabled() else logs.add_context(**ids)


@contextmanager
def _record(name: str, parent: Mapping[str, object] | None, ids: Mapping[str, object]) -> Iterator[None]:
    with logs.add_context(**ids):
        collector = _get_collector(os.getpid())
        attributes = {f"{PREFIX}{key}": value for key, value in logs.get_context_ids().items() if key != TRACE}
        with collector.span(name, attributes, parent) as trace, logs.add_context(**{TRACE: trace}):
            yield


def note(attributes: Mapping[str, str | int | float | bool], name: str = "") -> None:
    """Add attributes to the current span; `name`: a better one than it started with."""
    if is_enabled():
        _get_collector(os.getpid()).note(attributes, name)


def carry(headers: MutableMapping[str, object]) -> None:
    """Add the current span to a message's headers, for the span of its consumer."""
    if is_enabled():
        _get_collector(os.getpid()).carry(headers)
