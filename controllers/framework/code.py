"""Which code decides: a short digest of `controllers`, written into each ledger entry.

A decision replayed by the same code must be the same; by other code it may differ, and then it is said so.
"""

import functools
import hashlib
from pathlib import Path

LENGTH = 12


@functools.cache
def version() -> str:
    """The first 12 hexadecimal digits of the SHA-256 over the modules of `controllers`, by name and
    content.
    """
    here, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(here.rglob("*.py")):
        digest.update(f"{path.relative_to(here).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:LENGTH]
