"""The version of the decision code: a short digest of `controllers`, written into each ledger entry.

The same code must repeat a decision exactly; with other code a replay may differ, and says so.
"""

import functools
import hashlib
from pathlib import Path

LENGTH = 12


@functools.cache
def compute_code_version() -> str:
    """Return the first 12 hexadecimal digits of the SHA-256 over the modules of `controllers`.

    The digest covers their names and contents.
    """
    here, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(here.rglob("*.py")):
        digest.update(f"{path.relative_to(here).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:LENGTH]
