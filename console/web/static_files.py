"""Static files with their hash in their name, compressed in advance with Brotli and gzip."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from whitenoise.storage import CompressedManifestStaticFilesStorage  # type: ignore[import-untyped]


class StaticStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Compresses a file once: the best compression of the chart library takes seconds."""

    def compress_files(self, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Compress the files that changed since they were compressed."""
        changed = [path for path in paths if not is_compressed(Path(self.path(path)))]
        yield from super().compress_files(changed)


def is_compressed(file: Path) -> bool:
    """Return whether a file's compressed form is up to date."""
    compressed = file.with_name(f"{file.name}.br")
    return compressed.exists() and compressed.stat().st_mtime >= file.stat().st_mtime
