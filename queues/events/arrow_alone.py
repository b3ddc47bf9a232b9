"""PyArrow without pandas, which takes 37 MB per process and a third of a second of its start.

On its first list, PyArrow imports pandas to check for pandas types. If the check runs once while pandas can't be found,
PyArrow doesn't repeat it. Code that imports pandas itself still gets it, and `to_pandas` works.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class NoPandas(MetaPathFinder):
    """Import finder that rejects only pandas."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=name)
        return None


def use_arrow_alone() -> None:
    """Let PyArrow search for pandas in vain. If pandas is imported already, this does nothing."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    refusal = NoPandas()
    sys.meta_path.insert(0, refusal)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(refusal)
