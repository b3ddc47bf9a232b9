"""A clock that can be set under programs that run: `stepped_clock.c`, built where a C compiler is at hand.

Preloaded (LD_PRELOAD, with WEIR_CLOCK_FILE) it emulates a host whose clock is set: monotonic clocks go on, as
they do there. (libfaketime makes Python's `sleep` fail where monotonic clocks are left alone.)
"""

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("stepped_clock.c")


def build_clock(folder: Path) -> Path | None:
    """The library, built there; None where no compiler is."""
    compiler, library = shutil.which("cc"), folder / "stepped_clock.so"
    if compiler is None:
        return None
    building = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"]
    return library if subprocess.run(building, capture_output=True).returncode == 0 else None


def write_clock(path: Path, ahead_seconds: int) -> None:
    """Every process that reads the file is ahead by so much, at once: they share its page."""
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(struct.pack("=q", ahead_seconds))
