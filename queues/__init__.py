"""Queues: blocks of events, the segments that store them, and the nodes that hold the segments."""

import sys

from common.environment import OTLP_ENDPOINT

# redis-py imports OpenTelemetry wherever it is installed, used or not, which costs 0.15 s and 3 MB per
# process. Without a collector, it therefore finds none installed.
if not OTLP_ENDPOINT.is_set():
    sys.modules.setdefault("opentelemetry", None)  # type: ignore[arg-type]


def let_opentelemetry_be_found() -> None:
    """Let code that needs OpenTelemetry without a collector find it, once redis-py is imported."""
    if sys.modules.get("opentelemetry", sys) is None:
        del sys.modules["opentelemetry"]
