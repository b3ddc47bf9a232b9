"""`python -m tests.workers.host.bounded_samples`: a bounded process that does what its order names."""

import os
import sys
from typing import Any

from common import environment as variables
from workers.host import bounded_process


def _handle(order: dict[str, Any]) -> Any:
    match order["do"]:
        case "environment":
            return dict(variables.PROCESS)
        case "print":
            sys.stdout.write("no answer")
            os.write(1, b"nor this")
            sys.stderr.write(order["secret"])
        case "spin":
            while True:
                pass
        case "grow":
            return len(bytearray(1 << 30))
        case "hang":
            sys.stdin.close()
            os.read(os.pipe()[0], 1)
        case "exit":
            os._exit(3)
    return order


if __name__ == "__main__":
    bounded_process.serve(_handle, most_memory_bytes=1 << 28, most_core_seconds=1)
