"""PyArrow without pandas: 37 MB of each process, and a third of a second of its start.

Given its first list, PyArrow imports pandas to ask whether that is one of its own. Asked once while there is
none to be found, it doesn't look again. Who imports pandas has it as before, and `to_pandas` works.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class NoPandas(MetaPathFinder):
    """Refuses that one package."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=name)
        return None


def use_arrow_alone() -> None:
    """Let PyArrow look for pandas, in vain. Where pandas is imported already, there is nothing to save."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    refusal = NoPandas()
    sys.meta_path.insert(0, refusal)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(refusal)
