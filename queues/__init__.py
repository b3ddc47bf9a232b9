"""What flows, and where it waits: blocks of events, their segments, and the nodes that hold them."""

import sys

from queues.environment import OTLP_ENDPOINT

# redis-py imports OpenTelemetry wherever it is installed, used or not: 0.15 s and 3 MB of each process.
# Where no collector is set, it finds none installed.
if not OTLP_ENDPOINT.is_set():
    sys.modules.setdefault("opentelemetry", None)  # type: ignore[arg-type]


def let_opentelemetry_be_found() -> None:
    """For who needs it without a collector, once redis-py is imported."""
    if sys.modules.get("opentelemetry", sys) is None:
        del sys.modules["opentelemetry"]
