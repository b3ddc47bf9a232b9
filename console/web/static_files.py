"""Static files with their hash in their name, compressed in advance with Brotli and gzip."""

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from whitenoise.storage import CompressedManifestStaticFilesStorage  # type: ignore[import-untyped]

SUFFIXES = (".br", ".gz")


class StaticStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Compresses a file once: the best compression of the chart library takes seconds."""

    def compress_files(self, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Compress the files that changed since they were compressed. Copies of a file share its compressed forms."""
        copies: dict[bytes, list[str]] = {}
        for path in paths:
            if not is_compressed(Path(self.path(path))):
                copies.setdefault(hashlib.sha256(Path(self.path(path)).read_bytes()).digest(), []).append(path)
        yield from super().compress_files([first for first, *_ in copies.values()])
        for first, *others in copies.values():
            for path in others:
                yield from self._copy_compressed(first, path)

    def _copy_compressed(self, source: str, path: str) -> Iterator[tuple[str, str]]:
        for suffix in SUFFIXES:
            if (compressed := Path(self.path(source + suffix))).exists():
                shutil.copy(compressed, self.path(path + suffix))
                yield path, path + suffix


def is_compressed(file: Path) -> bool:
    """Return whether a file's compressed form is up to date."""
    compressed = file.with_name(f"{file.name}.br")
    return compressed.exists() and compressed.stat().st_mtime >= file.stat().st_mtime
