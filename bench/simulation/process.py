"""The process of simulations: `python -m bench.simulation.process` (`manage.py simulate` starts it).

It replaces the clocks before anything of Weir is imported.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.simulation import installation

SHARED_MEMORY = Path("/dev/shm")


def main(change: Callable[[], None] = lambda: None) -> int:
    """Set up this process, and run what the command line says. change: changes the code that is simulated."""
    folder = Path(tempfile.mkdtemp(prefix="weir-simulation-", dir=SHARED_MEMORY if SHARED_MEMORY.exists() else None))
    try:
        installation.install_clocks()
        installation.set_up(folder)
        change()
        from bench.simulation import report  # It imports Django's models.

        return report.main(folder, sys.argv[1:])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
