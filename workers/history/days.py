"""Days (UTC) as folders and files are named by them: `day=2026-11-20`."""

from collections.abc import Iterable
from pathlib import Path

from queues import checks


def is_day(text: str) -> bool:
    """Whether it is a day as we write it. Beside the days lies what people have put there: a copy, a folder
    that they renamed.
    """
    return checks.DAY.accepts(text) and checks.DAY.read(text) == text


def list_days(paths: Iterable[Path], suffix: str = "") -> list[str]:
    """The days that paths are named by, each once, in order; what has another name is left out."""
    found = {path.name.removeprefix("day=").removesuffix(suffix) for path in paths}
    return sorted(filter(is_day, found))
