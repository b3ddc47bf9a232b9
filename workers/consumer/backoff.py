"""The delay before a failed block is tried again."""

import zlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """delay = min(cap, base · 2^(tries - 1)) · j, with j in [0.5, 1.5) from the block id and the try.

    The jitter spreads blocks that failed together (a database was away) without a random number, so that a replay waits
    as long.
    """

    base_seconds: float = 1.0
    cap_seconds: float = 60.0

    def compute_delay_seconds(self, block_id: str, tries: int) -> float:
        """Return the delay after the `tries`-th try (1, 2, …) of a block."""
        exponent = min(max(tries, 1) - 1, 32)
        jitter = 0.5 + zlib.crc32(f"{block_id}:{tries}".encode()) / 2**32
        return min(self.cap_seconds, self.base_seconds * 2.0**exponent) * jitter
