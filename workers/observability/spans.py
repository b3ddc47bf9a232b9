"""Spans of what a process does, with the ids of its log lines (`queues.logs`), for a collector.

    with span("tick", loop=loop.name):       # log lines within name the loop, and so does the span
        note({"weir.decision": entry.pk})    # what turned out meanwhile

Without OTEL_EXPORTER_OTLP_ENDPOINT a span is the log's ids and nothing else: OpenTelemetry is not imported.

A span holds ids, names of ours and counts. Never an event, an error's text (it may quote one) or an address
that was asked for: an attribute leaves the plant.
"""

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from queues import environment as variables
from queues import logs

if TYPE_CHECKING:
    from workers.observability.collector import Collector

PREFIX = "weir."
TRACE = "trace"


def is_enabled() -> bool:
    """Whether spans are sent."""
    return variables.OTLP_ENDPOINT.is_set()


@lru_cache(maxsize=1)
def _collector_of(pid: int) -> "Collector":
    """Of this very process: one that was forked shares neither threads nor connections with its parent."""
    # Who sets no collector does not pay for what speaks to one.
    from workers.observability.collector import Collector

    return Collector.open()


@contextmanager
def span(name: str, parent: Mapping[str, Any] | None = None, /, **ids: object) -> Iterator[None]:
    """Also `logs.about(**ids)`. parent: what `carry` has put into a message, or the headers of a request."""
    with logs.add_context(**ids):
        if not is_enabled():
            yield
            return
        collector = _collector_of(os.getpid())
        attributes = {f"{PREFIX}{key}": value for key, value in logs.ids().items() if key != TRACE}
        with collector.span(name, attributes, parent) as trace, logs.add_context(**{TRACE: trace}):
            yield


def note(attributes: Mapping[str, str | int | float | bool], name: str = "") -> None:
    """Of the span that one is in; name: a better one than it began with."""
    if is_enabled():
        _collector_of(os.getpid()).note(attributes, name)


def carry(headers: MutableMapping[str, Any]) -> None:
    """Into a message, for the span of who takes it."""
    if is_enabled():
        _collector_of(os.getpid()).carry(headers)
