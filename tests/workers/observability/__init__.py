"""What is sent to a collector, and that nothing waits for one."""

import sys

# The process of the tests was started without a collector (queues/__init__.py).
sys.modules.pop("opentelemetry", None)
